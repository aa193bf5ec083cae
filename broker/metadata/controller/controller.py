"""The controller: decides every change of the cluster's metadata, and changes its own state by `replay` only.

Commands read the latest image and return records and a response. The driver appends the records and replays them at
their offsets before the next command; `commit` and `revert` follow the fate of the batches. Images are immutable, so
the last committed state is a retained reference.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from broker.metadata.controller.acls import Acls
from broker.metadata.controller.activation import activation_records
from broker.metadata.controller.brokers import Brokers
from broker.metadata.controller.client_quotas import ClientQuotas
from broker.metadata.controller.configs import AlterOutcome, ConfigOperation, Configs
from broker.metadata.controller.controllers import Controllers
from broker.metadata.controller.delegation_tokens import DelegationTokens
from broker.metadata.controller.feature_updates import FeatureChange, FeatureUpdates
from broker.metadata.controller.leader_and_isr_updates import LeaderAndIsrUpdates
from broker.metadata.controller.leader_elections import LeaderElections
from broker.metadata.controller.mutation_quota import UNLIMITED, MutationFigures, MutationQuota, MutationQuotas
from broker.metadata.controller.periodic_tasks import PeriodicTask, PeriodicTasks
from broker.metadata.controller.placement import PlacementRandom
from broker.metadata.controller.producer_ids import ProducerIdBlock, allocate_block
from broker.metadata.controller.reassignments import Reassignments
from broker.metadata.controller.replica_changes import ReplicaChanges
from broker.metadata.controller.result import MAX_RECORDS_PER_BATCH, CommandResult, ControllerResult
from broker.metadata.controller.scram import ScramCredentials
from broker.metadata.controller.state import (
    MIN_INSYNC_REPLICAS,
    ConfigLayers,
    ConfigSchema,
    ControllerSettings,
    ControllerState,
    QuorumView,
    SingleVoterQuorum,
)
from broker.metadata.controller.topics import Topics
from broker.metadata.image.config_image import ConfigResource
from broker.metadata.image.loader import LoaderState, MetadataLoader, Publication, RecordBatch
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.partition_index import PartitionIndex
from broker.metadata.image.records import VersionedRecord
from broker.metadata.snapshot.load import LoadedSnapshot
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerEpoch, BrokerId, Offset
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from protocol.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from protocol.messages.delete_topics import DeletableTopicResult
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from protocol.messages.metadata_records import RegisterBrokerRecord
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from protocol.messages.restore_topics import RestoreTopicsRequest, RestoreTopicsResponse
from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from protocol.primitives import Uuid

R = TypeVar("R")


class LocalBroker(NamedTuple):
    """The broker in this process."""

    id: BrokerId
    incarnation_id: Uuid


class _Uncommitted(NamedTuple):
    """A replayed batch that may still be lost: its publication, and the state to revert to."""

    last_offset: int
    before: LoaderState
    publication: Publication


class Controller:
    """The state machine on the metadata log. One method per controller API delegates to the component that owns it.

    `now_ms` is monotonic in all methods. `new_id` draws random topic ids and `random` places replicas; both are
    injected, so that equal inputs give equal records. Without `quorum` this node is a quorum of one at
    `settings.kraft_version`. A controller with `may_lead` false, on a node that is only a broker, has no partition
    index, which would take a tenth of the memory of a large cluster.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        schema: ConfigSchema,
        *,
        random: PlacementRandom,
        new_id: Callable[[], Uuid],
        log: LoaderState = LoaderState(),  # noqa: B008  immutable
        quorum: QuorumView | None = None,
        may_lead: bool = True,
    ) -> None:
        self.may_lead = may_lead
        quorum = quorum or SingleVoterQuorum(settings.kraft_version, (settings.node_id,))
        self._state = ControllerState(settings, schema, random, new_id, MetadataLoader(log), quorum)
        if may_lead:
            self._state.index = PartitionIndex.of(log.image.topics)
        self._uncommitted: deque[_Uncommitted] = deque()
        self._committed_offset = -1
        leader_and_isr = LeaderAndIsrUpdates(self._state)
        self._brokers = Brokers(self._state, leader_and_isr)
        self._controllers = Controllers(self._state)
        self._topics = Topics(self._state, leader_and_isr)
        self._replicas = ReplicaChanges(self._state, self._brokers, leader_and_isr)
        self._elections = LeaderElections(self._state, leader_and_isr)
        self._reassignments = Reassignments(self._state, leader_and_isr)
        self._configs = Configs(self._state)
        self._features = FeatureUpdates(self._state)
        self._mutations = MutationQuotas(self._state)
        self._quotas = ClientQuotas(self._state)
        self._scram = ScramCredentials(self._state)
        self._acls = Acls(self._state)
        self._tokens = DelegationTokens(self._state)
        self._periodic_tasks = PeriodicTasks(self._state, self._brokers, leader_and_isr, self._tokens)

    @property
    def settings(self) -> ControllerSettings:
        return self._state.settings

    @property
    def image(self) -> MetadataImage:
        """The latest image, including uncommitted records. Commands decide on it."""
        return self._state.image

    @property
    def committed_image(self) -> MetadataImage:
        """The latest committed image, from which readers are answered."""
        return self._uncommitted[0].before.image if self._uncommitted else self._state.image

    @property
    def leaderless_count(self) -> int:
        """The number of partitions without a leader in the latest image; 0 on a node that may never lead."""
        return self._state.index.leaderless_count

    @property
    def imbalanced_count(self) -> int:
        """The number of partitions not led by their preferred replica; 0 on a node that may never lead."""
        return self._state.index.imbalanced_count

    @property
    def last_offset(self) -> int:
        """The offset of the last replayed record, -1 before any."""
        return self._state.loader.state.last_offset

    # Replay

    def load(self, batches: Sequence[RecordBatch]) -> Publication:
        """Replay committed batches on an inactive controller."""
        assert not self._uncommitted, "a controller with uncommitted batches is active and replays its own batches"
        return self._take(batches)

    def load_snapshot(self, loaded: LoadedSnapshot) -> Publication:
        """Replace the state by a snapshot on an inactive controller.

        The offsets of broker registrations are unknown afterwards; the end of the snapshot is an upper bound.
        """
        assert not self._uncommitted, "an active controller never loads a snapshot"
        self._state.loader.install(loaded.image)
        self._state.index = loaded.partitions
        self._state.registration_offsets = {broker.id: loaded.image.offset for broker in loaded.image.brokers.all()}
        return Publication(loaded.delta, loaded.image)

    def replay(self, batch: RecordBatch, *, now_ms: int) -> None:
        """Replay a batch that this active controller has just appended. An error here is fatal.

        Between two batches of the controller the quorum may have appended control records.
        """
        before = self._state.loader.state
        skipped = batch.base_offset - (before.last_offset + 1)
        if skipped > 0:
            self._state.loader.skip_to(batch.base_offset)
            self._state.sessions.move_shutdowns(after=Offset(before.last_offset), by=skipped)
        publication = self._take((batch,))
        self._uncommitted.append(_Uncommitted(batch.last_offset, before, publication))
        self._follow_sessions(publication, now_ms)
        self._periodic_tasks.rearm(now_ms)

    def commit(self, offset: int) -> list[Publication]:
        """Return the publications of all batches committed up to `offset`, in order."""
        self._committed_offset = offset
        published = []
        while self._uncommitted and self._uncommitted[0].last_offset <= offset:
            published.append(self._uncommitted.popleft().publication)
        return published

    def revert(self) -> None:
        """Revert to the last committed state after losing leadership.

        Committed control records of the quorum may lie between that state and the reverted batches.
        """
        self._state.leaving.clear()
        while self._uncommitted:
            _, before, publication = self._uncommitted.pop()
            self._state.loader.state = before
            if publication.delta.topics is not None:
                self._state.index.revert(publication.delta.topics)
        if self._committed_offset > self.last_offset:
            self._state.loader.skip_to(self._committed_offset + 1)
        offsets = self._state.registration_offsets
        for broker in [broker for broker, offset in offsets.items() if offset > self.last_offset]:
            del offsets[broker]

    def _take(self, batches: Sequence[RecordBatch]) -> Publication:
        publication = self._state.loader.load(batches)
        if publication.delta.topics is not None and self.may_lead:
            self._state.index.apply(publication.delta.topics)
        for batch in batches:
            for offset, record in enumerate(batch.records, batch.base_offset):
                if isinstance(record, RegisterBrokerRecord):
                    self._state.registration_offsets[record.broker_id] = offset
        return publication

    def _follow_sessions(self, publication: Publication, now_ms: int) -> None:
        if publication.delta.brokers is None:
            return
        for broker_id, broker in publication.delta.brokers.changed_brokers.items():
            if broker is None:
                self._state.sessions.remove(BrokerId(broker_id))
            else:
                self._state.sessions.follow(
                    BrokerId(broker_id),
                    broker.epoch,
                    fenced=broker.fenced,
                    offset=Offset(publication.image.offset),
                    now_ms=now_ms,
                )

    # Activation and periodic tasks

    def activate(
        self, bootstrap: Sequence[VersionedRecord], *, local_broker: LocalBroker | None, now_ms: int
    ) -> ControllerResult[None]:
        """Become the active controller; return the first records to write.

        Every broker gets a full session. That of a previous incarnation of this process's own broker is held by no
        process, since it has certainly ended: its successor need not wait for the end of the session.
        """
        assert self.may_lead, "only a node with the controller role can be elected"
        self._state.sessions.clear()
        self._state.leaving.clear()
        self._mutations.clear()
        for broker in self.image.brokers.all():
            self._state.sessions.start(
                broker.id, broker.epoch, fenced=broker.fenced, offset=Offset(self.image.offset), now_ms=now_ms
            )
            if (
                local_broker is not None
                and local_broker.id == broker.id
                and local_broker.incarnation_id != broker.incarnation_id
            ):
                self._state.sessions.release(broker.id)
        self._periodic_tasks.arm(now_ms)
        min_insync = self._state.schema.topic_value(MIN_INSYNC_REPLICAS, ConfigLayers({}, {}, {}))
        return ControllerResult(activation_records(self._state.loader.state, bootstrap, min_insync), None)

    def next_due_ms(self) -> int | None:
        """Return when `due_tasks` is next non-empty; None while nothing is scheduled."""
        return self._periodic_tasks.next_due_ms()

    def due_tasks(self, now_ms: int) -> list[PeriodicTask]:
        """Return the periodic tasks that are due, to be executed one after the other."""
        return self._periodic_tasks.due(now_ms)

    # Commands

    def register_broker(
        self, request: BrokerRegistrationRequest, *, now_ms: int
    ) -> CommandResult[BrokerRegistrationResponse]:
        return self._brokers.register(request, now_ms=now_ms)

    def heartbeat(self, request: BrokerHeartbeatRequest, *, now_ms: int) -> CommandResult[BrokerHeartbeatResponse]:
        return self._brokers.heartbeat(request, now_ms=now_ms)

    def fence_terminated_broker(self, broker_id: BrokerId, epoch: BrokerEpoch) -> CommandResult[None]:
        return self._brokers.fence_terminated_broker(broker_id, epoch)

    def unregister_broker(self, request: UnregisterBrokerRequest) -> CommandResult[UnregisterBrokerResponse]:
        return self._brokers.unregister(request)

    def register_controller(
        self, request: ControllerRegistrationRequest
    ) -> ControllerResult[ControllerRegistrationResponse]:
        return self._controllers.register(request)

    def create_topics(
        self,
        request: CreateTopicsRequest,
        *,
        may_describe: Callable[[str], bool] = lambda _name: True,
        quota: MutationQuota = UNLIMITED,
    ) -> CommandResult[CreateTopicsResponse]:
        return self._topics.create(request, may_describe=may_describe, quota=quota)

    def restore_topics(self, request: RestoreTopicsRequest) -> ControllerResult[RestoreTopicsResponse]:
        return _bounded(self._topics.restore(request))

    def create_partitions(
        self, request: CreatePartitionsRequest, *, quota: MutationQuota = UNLIMITED
    ) -> ControllerResult[CreatePartitionsResponse]:
        return _bounded(self._topics.create_partitions(request, quota=quota))

    def delete_topics(
        self, topic_ids: Iterable[Uuid], *, quota: MutationQuota = UNLIMITED
    ) -> CommandResult[dict[Uuid, DeletableTopicResult]]:
        return self._topics.delete(topic_ids, quota=quota)

    def alter_configs(
        self, changes: Mapping[ConfigResource, Sequence[ConfigOperation]], *, validate_only: bool
    ) -> ControllerResult[list[AlterOutcome]]:
        return _bounded(self._configs.alter_incrementally(changes, validate_only=validate_only))

    def replace_configs(
        self, configs: Mapping[ConfigResource, Mapping[str, str | None]], *, validate_only: bool
    ) -> ControllerResult[list[AlterOutcome]]:
        return _bounded(self._configs.replace(configs, validate_only=validate_only))

    def update_features(self, changes: Sequence[FeatureChange], *, validate_only: bool) -> ControllerResult[None]:
        """Finalize feature levels. A change of kraft.version is only checked; the quorum applies it.

        Raises KafkaError INVALID_UPDATE_VERSION.
        """
        return _bounded(self._features.update(changes, validate_only=validate_only))

    def elect_leaders(self, request: ElectLeadersRequest) -> ControllerResult[ElectLeadersResponse]:
        return self._elections.elect(request)

    def alter_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> ControllerResult[AlterPartitionReassignmentsResponse]:
        return _bounded(self._reassignments.alter(request))

    def list_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> ControllerResult[ListPartitionReassignmentsResponse]:
        """List reassignments in the latest image. Writes no records; the response waits for pending commits."""
        return self._reassignments.list(request)

    def alter_partitions(self, request: AlterPartitionRequest) -> ControllerResult[AlterPartitionResponse]:
        return _bounded(self._replicas.alter(request))

    def assign_directories(
        self, request: AssignReplicasToDirsRequest
    ) -> ControllerResult[AssignReplicasToDirsResponse]:
        return _bounded(self._replicas.assign_directories(request))

    def allocate_producer_ids(
        self, broker_id: BrokerId, broker_epoch: BrokerEpoch
    ) -> ControllerResult[ProducerIdBlock]:
        """Allocate a block. Raises KafkaError STALE_BROKER_EPOCH unless the broker is registered with that epoch."""
        self._brokers.check_epoch(broker_id, broker_epoch)
        return allocate_block(self._state, broker_id, broker_epoch)

    # Quotas and security

    def mutation_quota(self, principal: str, client_id: str, *, strict: bool, now_ms: int) -> MutationQuota:
        """Return the quota that a client's request charges for created and deleted partitions."""
        return self._mutations.of(principal, client_id, strict=strict, now_ms=now_ms)

    def mutation_figures(self, now_ms: int, limit: int) -> Iterator[MutationFigures]:
        """Yield the `limit` mutation quotas that were used last, as measured by this active controller."""
        return self._mutations.figures(now_ms, limit)

    def alter_client_quotas(self, request: AlterClientQuotasRequest) -> ControllerResult[AlterClientQuotasResponse]:
        return _bounded(self._quotas.alter(request))

    def alter_scram_credentials(
        self, request: AlterUserScramCredentialsRequest
    ) -> ControllerResult[AlterUserScramCredentialsResponse]:
        return _bounded(self._scram.alter(request))

    def create_acls(self, request: CreateAclsRequest) -> ControllerResult[CreateAclsResponse]:
        return _bounded(self._acls.create(request))

    def delete_acls(self, request: DeleteAclsRequest) -> ControllerResult[DeleteAclsResponse]:
        return _bounded(self._acls.delete(request))

    def create_delegation_token(
        self, request: CreateDelegationTokenRequest, *, requester: str, wall_ms: int
    ) -> ControllerResult[CreateDelegationTokenResponse]:
        """Issue a token. Here and below `requester` is `Type:name` and `wall_ms` wall-clock time."""
        return self._tokens.create(request, requester=requester, now_ms=wall_ms)

    def renew_delegation_token(
        self, request: RenewDelegationTokenRequest, *, requester: str, wall_ms: int
    ) -> ControllerResult[RenewDelegationTokenResponse]:
        return self._tokens.renew(request, requester=requester, now_ms=wall_ms)

    def expire_delegation_token(
        self, request: ExpireDelegationTokenRequest, *, requester: str, wall_ms: int
    ) -> ControllerResult[ExpireDelegationTokenResponse]:
        return self._tokens.expire(request, requester=requester, now_ms=wall_ms)


def _bounded(result: ControllerResult[R]) -> ControllerResult[R]:
    """Return the result. Raises KafkaError for more records than one batch, which would not be atomic."""
    if len(result.records) > MAX_RECORDS_PER_BATCH:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"the request needs {len(result.records)} records, at most {MAX_RECORDS_PER_BATCH} are atomic; split it",
        )
    return result
