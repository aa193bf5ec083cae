"""Creation, restoration and deletion of topics, and creation of partitions, with checks in Kafka's order."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from broker.metadata.controller.leader_and_isr_updates import LeaderAndIsrUpdates
from broker.metadata.controller.mutation_quota import UNLIMITED, MutationQuota
from broker.metadata.controller.placement import PlacementImpossible, Placer, UsableBroker
from broker.metadata.controller.protected_topics import check_deletion, check_new_partitions
from broker.metadata.controller.replica_assignments import (
    bad_assignment,
    check_assignment,
    check_same_factor,
)
from broker.metadata.controller.result import (
    MAX_RECORDS_PER_BATCH,
    PARTITIONS_PER_PART,
    CommandResult,
    ControllerResult,
    PartialResult,
)
from broker.metadata.controller.state import ConfigLayers, ControllerState
from broker.metadata.image.config_image import ConfigResource, ResourceType, config_record
from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.partition_index import metric_name
from broker.metadata.image.records import VersionedRecord
from broker.metadata.image.topic_names import invalid_name_reason
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerId, LeaderEpoch
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.delete_topics import DeletableTopicResult
from protocol.messages.metadata_records import ProducerIdsRecord, RemoveTopicRecord, TopicRecord
from protocol.messages.restore_topics import (
    RestorableTopic,
    RestoredTopic,
    RestoreTopicsRequest,
    RestoreTopicsResponse,
)
from protocol.primitives import ONE_UUID, ZERO_UUID, Uuid, uuid_to_text

# In a request: use the controller's default.
UNSET: Final = -1
_RESERVED_IDS: Final = frozenset({ZERO_UUID, ONE_UUID})
_MAX_ID_DRAWS: Final = 1_000


class _PlacementContext:
    """The brokers, directories and configs that all topics of a command share, looked up once."""

    def __init__(self, state: ControllerState, leader_and_isr: LeaderAndIsrUpdates) -> None:
        self._state = state
        self._leader_and_isr = leader_and_isr
        self._directories: dict[int, Uuid] = {}
        self._configs: dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]] = {}
        brokers = state.image.brokers.all()
        self._active = frozenset(broker.id for broker in brokers if state.is_active(broker.id))
        candidates = [
            UsableBroker(broker.id, broker.rack, broker.fenced or broker.id in state.leaving)
            for broker in brokers
            if not broker.in_controlled_shutdown
        ]
        self._placer = Placer(candidates, state.random)

    def place(self, count: int, factor: int) -> list[PartitionRegistration]:
        """Place new partitions. Raises KafkaError INVALID_REPLICATION_FACTOR."""
        try:
            placed = self._placer.place(count, factor)
        except PlacementImpossible as error:
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, f"the replicas cannot be placed: {error}") from None
        return [self.registration(replicas, manual=False) for replicas in placed]

    def registration(self, replicas: Sequence[int], *, manual: bool) -> PartitionRegistration:
        """Return a new partition on these brokers. Raises KafkaError if none of them is active."""
        isr = tuple([broker for broker in replicas if broker in self._active])
        if not isr:
            code = ErrorCode.INVALID_REPLICA_ASSIGNMENT if manual else ErrorCode.INVALID_REPLICATION_FACTOR
            raise KafkaError(code, f"none of the brokers {list(replicas)} is active")
        supports_directories = self._state.version.supports_directories
        return PartitionRegistration(
            replicas=tuple(replicas),
            isr=isr,
            leader=BrokerId(isr[0]),
            leader_epoch=LeaderEpoch(0),
            partition_epoch=0,
            directories=tuple([self._directory(broker) for broker in replicas]) if supports_directories else (),
        )

    def configs(self, topic: str, overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        """Return every effective key of a new topic with these overrides, shared by topics with equal overrides."""
        key = tuple(overrides.items())
        known = self._configs.get(key)
        if known is None:
            known = self._configs[key] = self._effective(topic, overrides)
        return known

    def _effective(self, topic: str, overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        layers = self._state.layers(topic)
        effective = self._state.schema.effective_topic_configs(ConfigLayers(overrides, layers.node, layers.cluster))
        return [
            CreatableTopicConfigs(
                name=each.name,
                value=None if each.sensitive else each.value,
                read_only=each.read_only,
                config_source=each.source,
                is_sensitive=each.sensitive,
            )
            for each in effective
        ]

    def _directory(self, broker: int) -> Uuid:
        known = self._directories.get(broker)
        if known is None:
            known = self._directories[broker] = self._leader_and_isr.default_directory(broker)
        return known


class _Plan(NamedTuple):
    """The records and result of one valid topic."""

    records: list[VersionedRecord]
    result: CreatableTopicResult
    partition_count: int


class Topics:
    """The commands that create and delete topics and partitions."""

    def __init__(self, state: ControllerState, leader_and_isr: LeaderAndIsrUpdates) -> None:
        self._state = state
        self._leader_and_isr = leader_and_isr

    # CreateTopics

    def create(
        self,
        request: CreateTopicsRequest,
        *,
        may_describe: Callable[[str], bool] = lambda _name: True,
        quota: MutationQuota = UNLIMITED,
    ) -> CommandResult[CreateTopicsResponse]:
        """Create topics, with one result each in request order. `may_describe` returns whether the caller may see
        configs.

        Many partitions are created in parts, each topic as a whole. Raises KafkaError POLICY_VIOLATION for more records
        than one batch holds, before any are placed.
        """
        default_count = self._state.settings.default_partition_count
        partitions = sum(_requested_count(topic, default_count) for topic in request.topics)
        _check_partition_count(partitions)
        count = partitions + len(request.topics) + sum(len(topic.configs) for topic in request.topics)
        if count > MAX_RECORDS_PER_BATCH:
            raise _too_much(f"the request would write {count} records")
        created: dict[str, str] = {}  # by metric name
        topics, response = iter(request.topics), CreateTopicsResponse()

        def create_part(_now_ms: int) -> CommandResult[CreateTopicsResponse]:
            records: list[VersionedRecord] = []
            context = _PlacementContext(self._state, self._leader_and_isr)
            count = 0
            for topic in topics:
                try:
                    plan = self._plan(topic, created, context, may_describe(topic.name))
                    quota.charge(plan.partition_count)
                except KafkaError as error:
                    response.topics.append(_refusal(topic.name, error))
                    continue
                created[metric_name(topic.name)] = topic.name
                response.topics.append(plan.result)
                if not request.validate_only:
                    records += plan.records
                count += plan.partition_count
                if count >= PARTITIONS_PER_PART:
                    return PartialResult(records, create_part)
            return ControllerResult(records, response)

        return create_part(0)

    def _plan(
        self, topic: CreatableTopic, other_names: Mapping[str, str], context: _PlacementContext, may_describe: bool
    ) -> _Plan:
        self._check_name(topic.name, other_names)
        overrides = self._check_configs(topic)
        registrations = (self._assigned if topic.assignments else self._placed)(topic, context)
        topic_id = self._new_topic_id()
        records = self._topic_records(topic.name, topic_id, overrides, registrations)
        result = self._success(topic.name, topic_id, registrations, overrides, context, may_describe)
        return _Plan(records, result, len(registrations))

    def _topic_records(
        self,
        name: str,
        topic_id: Uuid,
        overrides: Mapping[str, str],
        registrations: Sequence[PartitionRegistration],
    ) -> list[VersionedRecord]:
        records = [VersionedRecord(TopicRecord(name=name, topic_id=topic_id), 0)]
        resource = ConfigResource(ResourceType.TOPIC, name)
        records += [config_record(resource, key, value) for key, value in overrides.items()]
        version = self._state.version
        return records + [each.to_record(topic_id, index, version) for index, each in enumerate(registrations)]

    def _check_name(self, name: str, other_names: Mapping[str, str]) -> None:
        if self._state.image.topics.by_name(name) is not None:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic '{name}' already exists")
        fault = invalid_name_reason(name)
        if fault is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
        other = self._state.index.colliding_name(name) or other_names.get(metric_name(name))
        if other is not None and other != name:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic '{name}' collides with '{other}' in metric names"
            )

    def _check_configs(self, topic: CreatableTopic) -> dict[str, str]:
        overrides: dict[str, str] = {}
        for config in topic.configs:
            if config.value is None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"the value of {config.name} is null")
            overrides[config.name] = config.value
        if overrides:
            resource = ConfigResource(ResourceType.TOPIC, topic.name)
            self._state.schema.validate(resource, overrides, None, self._state.layers(topic.name))
        schema = self._state.schema
        return {**overrides, **schema.configs_stored_at_creation(topic.name, overrides, self._state.layers(topic.name))}

    def _assigned(self, topic: CreatableTopic, context: _PlacementContext) -> list[PartitionRegistration]:
        if topic.replication_factor != UNSET:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a replication factor and assignments exclude each other")
        if topic.num_partitions != UNSET:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a partition count and assignments exclude each other")
        assignments: dict[int, Sequence[int]] = {}
        for assignment in topic.assignments:
            if assignment.partition_index in assignments:
                raise bad_assignment(f"partition {assignment.partition_index} is assigned twice")
            factor = len(next(iter(assignments.values()))) if assignments else None
            self._check_assignment(assignment.broker_ids, factor)
            assignments[assignment.partition_index] = assignment.broker_ids
        if sorted(assignments) != list(range(len(assignments))):
            raise bad_assignment("the assigned partitions must be numbered from 0 without gaps")
        return [context.registration(assignments[index], manual=True) for index in range(len(assignments))]

    def _placed(self, topic: CreatableTopic, context: _PlacementContext) -> list[PartitionRegistration]:
        factor, count = topic.replication_factor, topic.num_partitions
        if factor < UNSET or factor == 0:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "the replication factor must be larger than 0, or -1 for the default",
            )
        if count < UNSET or count == 0:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, "the number of partitions must be larger than 0, or -1 for the default"
            )
        settings = self._state.settings
        factor = settings.default_replication_factor if factor == UNSET else factor
        count = settings.default_partition_count if count == UNSET else count
        return context.place(count, factor)

    def _success(
        self,
        name: str,
        topic_id: Uuid,
        registrations: Sequence[PartitionRegistration],
        overrides: Mapping[str, str],
        context: _PlacementContext,
        may_describe: bool,
    ) -> CreatableTopicResult:
        result = CreatableTopicResult(name=name, topic_id=topic_id, error_message=None)
        if not may_describe:
            result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            result.configs = None
            return result
        result.num_partitions = len(registrations)
        result.replication_factor = len(registrations[0].replicas)
        result.configs = context.configs(name, overrides)
        return result

    def _new_topic_id(self) -> Uuid:
        """Return a new random id without a leading dash, which command lines would read as an option."""
        for _ in range(_MAX_ID_DRAWS):
            topic_id = self._state.new_id()
            usable = topic_id not in _RESERVED_IDS and not uuid_to_text(topic_id).startswith("-")
            if usable and self._state.image.topics.by_id(topic_id) is None:
                return topic_id
        raise AssertionError("the source of random ids repeats itself")

    # RestoreTopics

    def restore(self, request: RestoreTopicsRequest) -> ControllerResult[RestoreTopicsResponse]:
        """Create topics with their former ids, with one result each. Names and ids must be distinct.

        A topic that exists with that id is a success, so that the request can be repeated. Raises KafkaError
        POLICY_VIOLATION for more partitions than one batch holds.
        """
        _check_partition_count(sum(len(topic.leader_epochs) for topic in request.topics))
        records: list[VersionedRecord] = []
        response = RestoreTopicsResponse()
        context = _PlacementContext(self._state, self._leader_and_isr)
        restored: dict[str, str] = {}
        for topic in request.topics:
            result = RestoredTopic(topic.name, topic.topic_id)
            response.topics.append(result)
            try:
                records += self._restored(topic, restored, context)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
                continue
            restored[metric_name(topic.name)] = topic.name
        if request.min_next_producer_id > self._state.image.producer_ids.next_id:
            ids = ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=request.min_next_producer_id)
            records.append(VersionedRecord(ids, 0))
        return ControllerResult(() if request.validate_only else records, response)

    def _restored(
        self, topic: RestorableTopic, other_names: Mapping[str, str], context: _PlacementContext
    ) -> list[VersionedRecord]:
        present = self._state.image.topics.by_id(topic.topic_id)
        if present is not None and present.name == topic.name:
            return []
        if present is not None or topic.topic_id in _RESERVED_IDS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic id {uuid_to_text(topic.topic_id)} is in use")
        self._check_name(topic.name, other_names)
        if min(topic.leader_epochs, default=0) < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a leader epoch is negative")
        wanted = CreatableTopic(
            name=topic.name,
            num_partitions=len(topic.leader_epochs),
            replication_factor=topic.replication_factor,
            configs=[CreatableTopicConfig(config.name, config.value) for config in topic.configs],
        )
        overrides = self._check_configs(wanted)
        registrations = [
            registration._replace(leader_epoch=LeaderEpoch(epoch))
            for registration, epoch in zip(self._placed(wanted, context), topic.leader_epochs, strict=True)
        ]
        return self._topic_records(topic.name, topic.topic_id, overrides, registrations)

    # CreatePartitions

    def create_partitions(
        self, request: CreatePartitionsRequest, *, quota: MutationQuota = UNLIMITED
    ) -> ControllerResult[CreatePartitionsResponse]:
        """Add partitions, with one result per topic in request order."""
        records: list[VersionedRecord] = []
        response = CreatePartitionsResponse()
        context = _PlacementContext(self._state, self._leader_and_isr)
        for topic in request.topics:
            result = CreatePartitionsTopicResult(name=topic.name)
            try:
                records += self._new_partitions(topic, context, quota)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
            response.results.append(result)
        return ControllerResult(() if request.validate_only else records, response)

    def _new_partitions(
        self, request: CreatePartitionsTopic, context: _PlacementContext, quota: MutationQuota
    ) -> list[VersionedRecord]:
        topic = self._state.image.topics.by_name(request.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        check_new_partitions(topic.name)
        present = topic.partition_count
        added = request.count - present
        _check_partition_count(added)
        if added <= 0:
            relation = "already has" if added == 0 else "has more:"
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"the request asks for {request.count} partitions; the topic {relation} {present}",
            )
        factor = len(topic.partitions[min(topic.partitions)].replicas)
        if request.assignments is None:
            registrations = context.place(added, factor)
        else:
            registrations = self._assigned_partitions(request, added, factor, context)
        quota.charge(added)
        version = self._state.version
        return [each.to_record(topic.id, index, version) for index, each in enumerate(registrations, present)]

    def _assigned_partitions(
        self, request: CreatePartitionsTopic, added: int, factor: int, context: _PlacementContext
    ) -> list[PartitionRegistration]:
        assignments = request.assignments or []
        if len(assignments) != added:
            raise bad_assignment(f"the request adds {added} partitions, but has {len(assignments)} assignments")
        for assignment in assignments:
            self._check_assignment(assignment.broker_ids, factor)
        return [context.registration(assignment.broker_ids, manual=True) for assignment in assignments]

    # DeleteTopics

    def delete(
        self, topic_ids: Iterable[Uuid], *, quota: MutationQuota = UNLIMITED
    ) -> CommandResult[dict[Uuid, DeletableTopicResult]]:
        """Delete topics by id, with one result per id. Topics with many partitions in all are deleted in parts."""
        ids, results = iter(dict.fromkeys(topic_ids)), dict[Uuid, DeletableTopicResult]()

        def delete_part(_now_ms: int) -> CommandResult[dict[Uuid, DeletableTopicResult]]:
            records: list[VersionedRecord] = []
            count = 0
            for topic_id in ids:
                topic = self._state.image.topics.by_id(topic_id)
                try:
                    if topic is None:
                        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                    check_deletion(self._state, topic.name)
                    quota.charge(topic.partition_count)
                except KafkaError as error:
                    name = None if topic is None else topic.name
                    results[topic_id] = DeletableTopicResult(
                        name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
                    )
                    continue
                records.append(VersionedRecord(RemoveTopicRecord(topic_id=topic_id), 0))
                results[topic_id] = DeletableTopicResult(name=topic.name, topic_id=topic_id)
                count += topic.partition_count
                if count >= PARTITIONS_PER_PART:
                    return PartialResult(records, delete_part)
            return ControllerResult(records, results)

        return delete_part(0)

    # Replicas

    def _check_assignment(self, replicas: Sequence[int], factor: int | None) -> None:
        check_assignment(replicas, self._state.image.brokers)
        if factor is not None:
            check_same_factor(replicas, factor)


def _requested_count(topic: CreatableTopic, default: int) -> int:
    """Return the partition count of a requested topic; an invalid count is 0 here and refused later."""
    return len(topic.assignments) or max(0, default if topic.num_partitions == UNSET else topic.num_partitions)


def _check_partition_count(count: int) -> None:
    """Refuse more partitions than one batch holds, before placing them, which could take arbitrarily long."""
    if count > MAX_RECORDS_PER_BATCH:
        raise _too_much(f"the request asks for {count} partitions")


def _too_much(what: str) -> KafkaError:
    return KafkaError(ErrorCode.POLICY_VIOLATION, f"{what}; the limit is {MAX_RECORDS_PER_BATCH}; split it")


def _refusal(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)
