"""Images and controllers for tests, built from records."""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import TypeVar

from broker.metadata.controller.controller import Controller, LocalBroker
from broker.metadata.controller.result import CommandResult, PartialResult
from broker.metadata.controller.state import ConfigLayers, ControllerSettings, EffectiveConfig, QuorumView
from broker.metadata.image.cluster_image import RegisteredEndpoint
from broker.metadata.image.config_image import ConfigResource, ResourceType, config_record
from broker.metadata.image.features import KRAFT_VERSION, SUPPORTED_FEATURES, VersionRange, bootstrap_records
from broker.metadata.image.loader import LoaderState, MetadataLoader, Publication, RecordBatch
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage
from broker.metadata.image.metadata_version import LATEST_METADATA_VERSION, MetadataVersion
from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.records import MetadataRecord, VersionedRecord, decode_record, encode_record
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from protocol.messages.metadata_records import (
    BrokerEndpoint,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from protocol.primitives import Uuid

R = TypeVar("R")

CLUSTER_ID = "test-cluster"
LISTENER = "PLAINTEXT"


def uuid(number: int) -> Uuid:
    """Return a UUID that ends with a number; never a reserved one."""
    return Uuid(bytes([0xAA]) + bytes(7) + number.to_bytes(8, "big"))


def directory_of(broker: int) -> Uuid:
    return uuid(1_000_000 + broker)


def incarnation_of(broker: int, incarnation: int = 1) -> Uuid:
    return uuid(2_000_000 + 1_000 * broker + incarnation)


def image_of(records: Iterable[MetadataRecord], base: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    """Return the image after records."""
    state = LoaderState(base, base.offset)
    batch = list(records)
    first = base.offset + 1
    return MetadataLoader(state).load([RecordBatch(first, first + len(batch) - 1, LeaderEpoch(1), 1_000, batch)]).image


def image_with(
    *,
    topics: Mapping[str, int] | None = None,
    brokers: Sequence[int] = (1,),
    fenced: Sequence[int] = (),
    configs: Mapping[str, Mapping[str, str]] | None = None,
    listeners: Sequence[str] = (LISTENER,),
) -> MetadataImage:
    """Return an image with partition counts per topic; partitions are on all brokers, led by the first unfenced one."""
    records: list[MetadataRecord] = [each.message for each in bootstrap_records()]
    records += [_registered(broker, broker in fenced, listeners) for broker in brokers]
    active = [broker for broker in brokers if broker not in fenced]
    for number, (name, count) in enumerate(sorted((topics or {}).items()), 1):
        records.append(TopicRecord(name=name, topic_id=uuid(number)))
        for partition in range(count):
            records.append(_partition(uuid(number), partition, brokers, active))
    for name, overrides in (configs or {}).items():
        resource = ConfigResource(ResourceType.TOPIC, name)
        records += [config_record(resource, key, value).message for key, value in overrides.items()]
    return image_of(records)


def _registered(broker: int, fenced: bool, listeners: Sequence[str]) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker,
        incarnation_id=incarnation_of(broker),
        broker_epoch=broker,
        end_points=[
            BrokerEndpoint(name=name, host=f"host-{broker}", port=9000 + 100 * index + broker, security_protocol=0)
            for index, name in enumerate(listeners)
        ],
        rack=f"rack-{broker}",
        fenced=fenced,
        log_dirs=[directory_of(broker)],
    )


def _partition(topic: Uuid, index: int, replicas: Sequence[int], active: Sequence[int]) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic,
        replicas=list(replicas),
        isr=list(active) or list(replicas),
        leader=active[0] if active else -1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[directory_of(broker) for broker in replicas],
    )


class PlainSchema:
    """A configuration of three topic keys; the value "bad" is invalid."""

    DEFAULTS: Mapping[str, str] = {
        "min.insync.replicas": "1",
        "unclean.leader.election.enable": "false",
        "cleanup.policy": "delete",
    }

    def validate(
        self,
        resource: ConfigResource,
        configs: Mapping[str, str],
        existing: Mapping[str, str] | None,
        layers: ConfigLayers,
    ) -> None:
        for key, value in configs.items():
            if value == "bad":
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} is bad")

    def is_list(self, resource_type: int, key: str) -> bool:
        return key == "cleanup.policy"

    def default_of(self, resource_type: int, key: str) -> str | None:
        return self.DEFAULTS.get(key)

    def topic_value(self, key: str, layers: ConfigLayers) -> str:
        for layer in layers:
            if key in layer:
                return layer[key]
        return self.DEFAULTS[key]

    def configs_stored_at_creation(
        self, topic: str, configs: Mapping[str, str], layers: ConfigLayers
    ) -> Mapping[str, str]:
        return {"default": "kept"} if topic == "settled" else {}

    def effective_topic_configs(self, layers: ConfigLayers) -> list[EffectiveConfig]:
        return [EffectiveConfig(key, self.topic_value(key, layers), 5, False, False) for key in self.DEFAULTS]


class Cluster:
    """An active controller on a log in memory with a manual clock, with the verbs of controller tests.

    Every command's records are encoded and decoded, so that unwritable records fail the test.
    """

    def __init__(
        self,
        settings: ControllerSettings | None = None,
        *,
        seed: int = 7,
        elr: bool = False,
        level: MetadataVersion = LATEST_METADATA_VERSION,
        quorum: QuorumView | None = None,
    ) -> None:
        self.now_ms = 1_000_000
        self.settings = settings or ControllerSettings(CLUSTER_ID, node_id=1, auto_leader_rebalance=False)
        self.log: list[RecordBatch] = []
        self.quorum_writes = 0  # control records in front of the next batch
        self.published: list[Publication] = []
        self._random = Random(seed)
        self._quorum = quorum
        self._ids = iter(range(1, 10_000_000))
        self.controller = self.new_controller()
        self._bootstrap = [each for each in bootstrap_records(level) if elr or _is_not_elr(each)]
        self.activate()

    def new_controller(self, log: LoaderState | None = None) -> Controller:
        return Controller(
            self.settings,
            PlainSchema(),
            random=self._random,
            new_id=lambda: uuid(next(self._ids)),
            log=log or LoaderState(),
            quorum=self._quorum,
        )

    def activate(self, local_broker: LocalBroker | None = None) -> None:
        self.write(self.controller.activate(self._bootstrap, local_broker=local_broker, now_ms=self.now_ms))

    def fail_over(self) -> None:
        """Replace the controller by one that replays the committed log."""
        self.commit()
        self.controller = self.new_controller()
        if self.log:
            self.controller.load(self.log)
        self.activate()

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    def write(self, result: CommandResult[R], *, commit: bool = True) -> R:
        """Append and replay a command's records, part by part, without other commands in between."""
        while isinstance(result, PartialResult):
            self.write_part(result)
            result = result.rest(self.now_ms)
        for records in result.batches():
            self.append(records)
        if commit:
            self.commit()
        return result.response

    def write_part(self, part: PartialResult[R]) -> None:
        for records in part.batches():
            self.append(records)

    def append(self, records: Sequence[VersionedRecord]) -> None:
        first = self.controller.last_offset + 1 + self.quorum_writes
        self.quorum_writes = 0
        decoded = [decode_record(encode_record(*record)) for record in records]
        batch = RecordBatch(first, first + len(decoded) - 1, LeaderEpoch(1), self.now_ms, decoded)
        self.controller.replay(batch, now_ms=self.now_ms)
        self.log.append(batch)

    def append_messages(self, *messages: MetadataRecord, version: int = 0) -> None:
        """Append records that no command wrote."""
        self.append([VersionedRecord(message, version) for message in messages])

    def commit(self) -> None:
        self.published += self.controller.commit(self.controller.last_offset)

    # Requests of brokers and clients

    def registration(self, broker: int, *, incarnation: int = 1, rack: str | None = None) -> BrokerRegistrationRequest:
        features = {**SUPPORTED_FEATURES, KRAFT_VERSION: VersionRange(0, 1)}
        return BrokerRegistrationRequest(
            broker_id=broker,
            cluster_id=CLUSTER_ID,
            incarnation_id=incarnation_of(broker, incarnation),
            listeners=[Listener(LISTENER, f"host-{broker}", 9000 + broker, 0)],
            features=[Feature(name, *levels) for name, levels in features.items()],
            rack=rack,
            log_dirs=[directory_of(broker)],
        )

    def register(self, broker: int, *, incarnation: int = 1, rack: str | None = None, previous_epoch: int = -1) -> int:
        request = self.registration(broker, incarnation=incarnation, rack=rack)
        request.previous_broker_epoch = previous_epoch
        return self.write(self.controller.register_broker(request, now_ms=self.now_ms)).broker_epoch

    def heartbeat(
        self,
        broker: int,
        *,
        want_fence: bool = False,
        want_shut_down: bool = False,
        offset: int | None = None,
        offline: Sequence[Uuid] = (),
    ) -> BrokerHeartbeatResponse:
        registration = self.image.brokers.get(broker)
        request = BrokerHeartbeatRequest(
            broker_id=broker,
            broker_epoch=-1 if registration is None else registration.epoch,
            current_metadata_offset=self.controller.last_offset if offset is None else offset,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
            offline_log_dirs=list(offline),
        )
        return self.write(self.controller.heartbeat(request, now_ms=self.now_ms))

    def start_brokers(self, *brokers: int) -> None:
        """Register and unfence brokers."""
        for broker in brokers:
            self.register(broker)
            self.heartbeat(broker)

    def expire_session(self, broker: int, others: Iterable[int] = ()) -> None:
        """Expire a broker's session while the others send heartbeats."""
        for other in others:
            self.heartbeat(other)
        self.now_ms += self.settings.session_timeout_ms - 1
        for other in others:
            self.heartbeat(other)
        self.now_ms += 1
        self.run_periodic_tasks()

    def fence_terminated_broker(self, broker: int, epoch: int) -> None:
        """Fence a broker whose process has ended."""
        self.write(self.controller.fence_terminated_broker(BrokerId(broker), BrokerEpoch(epoch)))

    def run_periodic_tasks(self) -> None:
        for task in self.controller.due_tasks(self.now_ms):
            self.write(task(self.now_ms))

    def create_topic(self, name: str, assignments: Sequence[Sequence[int]]) -> Uuid:
        topic = CreatableTopic(
            name, -1, -1, [CreatableReplicaAssignment(index, list(each)) for index, each in enumerate(assignments)]
        )
        response = self.write(self.controller.create_topics(CreateTopicsRequest([topic])))
        assert response.topics[0].error_code == 0, response.topics[0].error_message
        return response.topics[0].topic_id

    def partition(self, topic: str, index: int = 0) -> PartitionRegistration:
        image = self.image.topics.by_name(topic)
        assert image is not None
        return image.partitions[index]


def endpoint(broker: int) -> RegisteredEndpoint:
    return RegisteredEndpoint(f"host-{broker}", 9000 + broker)


def _is_not_elr(record: VersionedRecord) -> bool:
    return getattr(record.message, "name", "") != "eligible.leader.replicas.version"
