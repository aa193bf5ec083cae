"""Known bugs of other systems, planted one at a time, to prove that the checker detects them.

Each replaces code on all nodes of a history. `PLANTED` names the invariants that must fail, and the number of seeds
within which they must.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from broker.fetch import rounds
from broker.fetch.source import FetchSource
from broker.metadata.controller import replica_changes
from broker.metadata.controller.partition_changes import PartitionChange
from broker.metadata.controller.replica_changes import ReplicaChanges
from broker.metadata.image.partition import PartitionRegistration
from broker.replication import fetcher
from broker.replication import partition as replication_partition
from broker.replication.fetch_actions import FetchedPartition
from broker.replication.fetch_plan import fetch_request
from broker.replication.follower import FollowerRole
from broker.replication.isr import CommittedIsr, PendingIsr
from broker.replication.leader import CommitTerms, FollowerFetch, FollowerProgress, IsrEligibility, LeaderRole
from broker.replication.partition import Assignment, Role
from broker.runtime.controller.broker_lifecycle import BrokerLifecycle
from broker.runtime.controller.driver import ControllerDriver
from broker.runtime.partitions import partition_reads
from broker.runtime.partitions.broker_view import MetadataBrokerView
from broker.runtime.partitions.hosted_follower import HostedFollower
from broker.runtime.partitions.partition import Partition
from broker.runtime.partitions.partition_reads import FetchParams
from broker.runtime.partitions.reads import FetchIsolation, FetchTarget
from broker.runtime.partitions.refused_sequences import RefusedSequences
from broker.runtime.partitions.replica_assignments import ReplicaAssignments
from broker.runtime.replication.replica_fetcher_manager import ReplicaFetcherManager
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerEpoch, BrokerId
from protocol.messages.fetch import FetchRequest
from protocol.messages.metadata_records import PartitionChangeRecord
from protocol.primitives import Uuid
from protocol.records.batch import BatchHeader
from storage import recovery, validation
from storage.compaction.offset_map import OffsetMap
from storage.compaction.rules import BatchRules
from storage.directories.log_dirs import LogDirs
from storage.epochs import LeaderEpochs
from storage.errors import InvalidRecords, Rejection
from storage.producer_state import CachedBatch, Origin, ProducerState
from tests.simulation.replication.campaign import Patch, run_script, run_seed
from tests.simulation.replication.scripts.recreation import (
    fetch_with_deleted_topic_id,
    topic_recreated_while_brokers_are_dead,
)
from tests.simulation.replication.scripts.rot import rotten_record_of_a_leader, rotten_record_of_the_last_replica
from tests.simulation.replication.scripts.scripted import (
    acknowledgement_of_an_earlier_term,
    delayed_fetch_before_registration,
    delayed_fetch_of_previous_registration,
    divergence_below_deleted_records,
    divergence_below_lost_log_start,
    fetch_with_older_leader_epoch,
)

EVENTS: Final = 2_000


def _without_current_epoch(*args: Any, **kwargs: Any) -> FetchRequest:
    """Fetch with the epoch of the last record, which the leader's log must continue, instead of the follower's current
    leader epoch.
    """
    request = fetch_request(*args, **kwargs)
    for topic in request.topics:
        for each in topic.partitions:
            each.current_leader_epoch = -1
    return request


_followers = replication_partition._followers
_check = ProducerState.check


def _kept_followers(
    present: Role | None, assignment: Assignment, broker_id: BrokerId, now_ms: int, *, is_new_epoch: bool
) -> dict[BrokerId, FollowerProgress]:
    """Keep the followers' progress in a new role, as Kafka does for the former leader."""
    if isinstance(present, LeaderRole):
        present = replace(present, epoch=assignment.leader_epoch)
    return _followers(present, assignment, broker_id, now_ms, is_new_epoch=is_new_epoch)


_begin_epoch = Partition._begin_epoch


def _cut_at_high_watermark(partition: Partition) -> None:
    _begin_epoch(partition)
    log = partition.log
    if isinstance(partition.role, FollowerRole) and log.high_watermark < log.log_end_offset:
        log.truncate_to(log.high_watermark, now_ms=partition._clock.now_ms())


def _must_hold_if_confirmed(
    leader: LeaderRole, broker_id: BrokerId, follower: FollowerProgress, log_end_offset: int, terms: CommitTerms
) -> bool:
    return broker_id in leader.isr.committed


def _expand_at_high_watermark(
    leader: LeaderRole, broker_id: BrokerId, high_watermark: int, is_eligible: IsrEligibility
) -> PendingIsr | None:
    follower = leader.followers.get(broker_id)
    if follower is None or not isinstance(leader.isr, CommittedIsr) or broker_id in leader.isr.committed:
        return None
    if follower.log_end_offset < high_watermark or not is_eligible(BrokerId(broker_id), follower.broker_epoch):
        return None
    leader.isr = leader.isr.propose_expand(broker_id)
    return leader.isr


_on_follower_fetch = LeaderRole.on_follower_fetch


def _accept_any_broker_epoch(
    leader: LeaderRole, fetch: FollowerFetch, log_end_offset: int, now_ms: int, registered_broker_epoch: int
) -> ErrorCode:
    return _on_follower_fetch(leader, fetch, log_end_offset, now_ms, BrokerEpoch(-1))


def _active_with_any_broker_epoch(changes: ReplicaChanges, members: Any) -> None:
    for broker_id, _ in members:
        if not changes._state.is_active(broker_id):
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)


def _eligible_with_any_broker_epoch(view: MetadataBrokerView, broker_id: BrokerId, broker_epoch: int) -> bool:
    broker = view._metadata.image.brokers.get(broker_id)
    return broker is not None and broker.is_active


async def _no_wait(lifecycle: BrokerLifecycle) -> None:
    """Continue as if the own registration had been read."""


def _begin_at_once(fetchers: ReplicaFetcherManager) -> None:
    held, fetchers._not_begun = fetchers._not_begun, None
    for partition in (held or {}).values():
        fetchers.follow(partition)


_on_divergence = fetcher.FetcherCore._on_divergence


def _cut_only(core: fetcher.FetcherCore[Any], fetched: FetchedPartition[Any], work: Any, now_ms: int) -> None:
    """Truncate as Kafka does, wherever the leader's log starts."""
    fetched.data.log_start_offset = -1
    _on_divergence(core, fetched, work, now_ms)


_append = Partition.append


def _count_append_as_contact(partition: Partition, *args: Any, **named: Any) -> Any:
    role = partition.role
    if isinstance(role, LeaderRole):
        for follower in role.followers.values():
            if follower.log_end_offset == partition.log.log_end_offset:
                follower.caught_up_ms = int(partition._clock.monotonic_ms())
    return _append(partition, *args, **named)


_propose_shrink = LeaderRole.propose_shrink


def _shrink_alone(leader: LeaderRole, *args: Any) -> PendingIsr | None:
    pending = _propose_shrink(leader, *args)
    if pending is not None:
        leader.isr = CommittedIsr(pending.proposed)
    return None


def _refuse_newer(requested: int, current: int) -> ErrorCode:
    return ErrorCode.UNKNOWN_LEADER_EPOCH if requested > current else ErrorCode.NONE


def _refuse_older(requested: int, current: int) -> ErrorCode:
    return ErrorCode.FENCED_LEADER_EPOCH if -1 < requested < current else ErrorCode.NONE


_read = partition_reads.read


def _read_followers_to_the_end(
    partition: Partition, target: Any, reader: FetchParams, *args: Any, **kwargs: Any
) -> Any:
    if not partition.is_leader:
        reader = reader._replace(isolation=FetchIsolation.LOG_END)
    return _read(partition, target, reader, *args, **kwargs)


_find_or_create_log = ReplicaAssignments._find_or_create_log


def _adopt_by_name(
    assignments: ReplicaAssignments, name: str, topic_id: Uuid, index: int, registration: PartitionRegistration
) -> None:
    log = assignments._store.find(name, index)
    if log is None:
        _find_or_create_log(assignments, name, topic_id, index, registration)
    else:
        assignments._partitions.host(name, topic_id, index, log, registration)


_find = FetchSource.find


def _find_by_name(source: FetchSource, target: Any) -> Any:
    """Find the partition by its name where the topic id is unknown; the scripts have a single topic."""
    found = _find(source, target)
    if found is not None:
        return found
    return next((topic.partitions.get(target.index) for topic in source.partitions.by_name.values()), None)


_newest = OffsetMap.get


def _later_than_the_newest(offsets: OffsetMap, key: bytes) -> int:
    return _newest(offsets, key) + 1


_merge = PartitionRegistration.merge


def _merge_in_same_epoch(registration: PartitionRegistration, change: PartitionChangeRecord) -> PartitionRegistration:
    return _merge(registration, change)._replace(leader_epoch=registration.leader_epoch)


class Planted(NamedTuple):
    """A bug, the invariants of which one must fail, and the number of seeds, from `first` on, within which it must.

    `first` is close to a seed that fails, for speed; `seeds` is the bound if histories change. A script covers bugs
    that are too rare for that.
    """

    patches: tuple[Patch, ...]
    catchers: frozenset[str]
    seeds: int
    first: int = 1
    script: Callable[[int], None] | None = None


_DATA: Final = frozenset(
    {"StrongIsr", "LeaderCompleteness", "LogsMatch", "CommittedIsFinal", "AcknowledgedIsCommitted"}
)


def _accept_any_sequence(refused: RefusedSequences, *_: Any) -> None:
    """Let the log judge alone."""


def _append_again(
    state: ProducerState, header: BatchHeader, origin: Origin, high_watermark: int = 0
) -> CachedBatch | None:
    """Take a repeated batch for a new one if its offsets are forgotten."""
    try:
        return _check(state, header, origin, high_watermark)
    except InvalidRecords as error:
        if error.kind is not Rejection.DUPLICATE_SEQUENCE_NUMBER:
            raise
        return None


PLANTED: Final[Mapping[str, Planted]] = {
    "fetching with the epoch of the last record only (first version of KIP-320)": Planted(
        (Patch(fetcher, "fetch_request", _without_current_epoch),), _DATA, 10, script=fetch_with_older_leader_epoch
    ),
    "not checking the leader epoch": Planted(
        (Patch(partition_reads, "check_leader_epoch", lambda *_: ErrorCode.NONE),),
        _DATA,
        10,
        script=fetch_with_older_leader_epoch,
    ),
    "keeping follower progress over a skipped epoch": Planted(
        (Patch(replication_partition, "_followers", _kept_followers),), _DATA, 10, script=fetch_with_older_leader_epoch
    ),
    "counting fetches of a broker's former registration": Planted(
        (
            Patch(LeaderRole, "on_follower_fetch", _accept_any_broker_epoch),
            Patch(MetadataBrokerView, "is_isr_eligible", _eligible_with_any_broker_epoch),
            Patch(ReplicaChanges, "_check_eligible", _active_with_any_broker_epoch),
        ),
        _DATA,
        60,
        script=delayed_fetch_of_previous_registration,
    ),
    "fetching before the broker is registered": Planted(
        (
            Patch(BrokerLifecycle, "wait_caught_up", _no_wait),
            Patch(ReplicaFetcherManager, "begin", _begin_at_once),
        ),
        _DATA,
        20,
        script=delayed_fetch_before_registration,
    ),
    "truncating to the high watermark": Planted((Patch(Partition, "_begin_epoch", _cut_at_high_watermark),), _DATA, 50),
    "committing records of the confirmed ISR": Planted(
        (Patch(LeaderRole, "_must_hold", _must_hold_if_confirmed),), _DATA, 50
    ),
    "adding replicas below the start of the leader epoch to the ISR": Planted(
        (Patch(LeaderRole, "propose_expand", _expand_at_high_watermark),), _DATA, 150, first=39
    ),
    "adding fenced and shutting down replicas to the ISR": Planted(
        (
            Patch(MetadataBrokerView, "is_isr_eligible", lambda *_: True),
            Patch(ReplicaChanges, "_check_eligible", lambda *_: None),
        ),
        frozenset({"MembersAreActive"}),
        50,
        first=8,
    ),
    "acknowledging records before they are flushed": Planted(
        (Patch(HostedFollower, "is_flushed", property(lambda _: True)),), frozenset({"ToldIsFlushed"}), 50
    ),
    "not checking the epoch of the last fetched record": Planted(
        (Patch(partition_reads, "_divergence", lambda *_: None),), _DATA, 100, first=16
    ),
    "keeping records below the leader's log start offset on divergence": Planted(
        (Patch(fetcher.FetcherCore, "_on_divergence", _cut_only),), _DATA, 5, script=divergence_below_deleted_records
    ),
    "not restoring the epochs of records restored by a crash": Planted(
        (Patch(recovery, "_restore_first_epochs", lambda *_: None),), _DATA, 5, script=divergence_below_lost_log_start
    ),
    "counting an append as contact with a silent follower": Planted(
        (Patch(Partition, "append", _count_append_as_contact),),
        frozenset({"SilentMembersLeave"}),
        150,
        first=104,
    ),
    "ignoring the requests of a session as contact": Planted(
        (Patch(FollowerProgress, "on_append", lambda _: None),), frozenset({"FetchingMembersStay"}), 50
    ),
    "keeping the position of a late fetch until its session moves": Planted(
        (Patch(FetchTarget, "recall", lambda _: None),), frozenset({"FetchingMembersStay"}), 100, first=251
    ),
    "accepting in-sync sets at stale partition epochs": Planted(
        (Patch(replica_changes, "_check_epochs", lambda *_: None),), frozenset({"ChangesFollowTheLatest"}), 40, first=16
    ),
    "removing replicas within a leader epoch": Planted(
        (Patch(PartitionChange, "_bump_leader_epoch_for_lost_replicas", lambda *_: None),),
        frozenset({"LeaderEpochsGrow"}),
        150,
        first=45,
    ),
    "removing tombstones without delay": Planted(
        (Patch(BatchRules, "_new_horizon", lambda rules: rules._now_ms),), frozenset({"NewestValuesStay"}), 60, first=40
    ),
    "removing the newest value of a key": Planted(
        (Patch(OffsetMap, "get", _later_than_the_newest),), frozenset({"NewestValuesStay"}), 60, first=7
    ),
    "electing leaders within the leader epoch": Planted(
        (Patch(PartitionRegistration, "merge", _merge_in_same_epoch),),
        frozenset({"LeaderEpochsGrow", "OneLeaderPerEpoch"}),
        20,
    ),
    "keeping leader epochs of truncated records": Planted(
        (Patch(LeaderEpochs, "truncate_from_end", lambda *_: None),),
        _DATA | {"Liveness", "NodesDoNotFail"},
        60,
        first=29,
    ),
    "shrinking the in-sync set without the controller": Planted(
        (Patch(LeaderRole, "propose_shrink", _shrink_alone),), _DATA, 10
    ),
    "serving requests of older leader epochs": Planted(
        (Patch(partition_reads, "check_leader_epoch", _refuse_newer),), frozenset({"RequestsAreFenced"}), 20
    ),
    "serving requests of newer leader epochs": Planted(
        (Patch(partition_reads, "check_leader_epoch", _refuse_older),), frozenset({"RequestsAreFenced"}), 120, first=35
    ),
    "answering OffsetForLeaderEpoch in any leader epoch": Planted(
        (Patch(partition_reads, "check_reader", lambda *_, **__: None),), frozenset({"RequestsAreFenced"}), 60, first=17
    ),
    "measuring sessions of brokers by the wall clock": Planted(
        (Patch(ControllerDriver, "_now_ms", lambda driver: driver._clock.now_ms()),),
        frozenset({"Liveness", "SilentBrokersAreFenced", "HeartbeatsCount"}),
        150,
        first=35,
    ),
    "serving consumers from a follower up to its log end": Planted(
        (Patch(rounds, "read", _read_followers_to_the_end),),
        frozenset({"ReadsEndAtHighWatermark", "ConsistentReads"}),
        20,
    ),
    "appending fetched records without checking them": Planted(
        (Patch(validation, "_check_crc", lambda *_: None),),
        frozenset({"RotDoesNotSpread"}),
        5,
        script=rotten_record_of_a_leader,
    ),
    "registering with the former broker epoch after a loss of flushed records": Planted(
        (Patch(LogDirs, "previous_broker_epoch", property(lambda dirs: dirs.directories[0].previous_epoch)),),
        _DATA,
        5,
        script=rotten_record_of_the_last_replica,
    ),
    "acknowledging records in a later term": Planted(
        (Patch(Partition, "_fail_producers", lambda *_: None),),
        frozenset({"AcknowledgedIsCommitted"}),
        5,
        script=acknowledgement_of_an_earlier_term,
    ),
    "adopting a log of a deleted topic by its name": Planted(
        (Patch(ReplicaAssignments, "_find_or_create_log", _adopt_by_name),),
        _DATA,
        5,
        script=topic_recreated_while_brokers_are_dead,
    ),
    "adopting a log of a deleted topic by its name in random schedules": Planted(
        (Patch(ReplicaAssignments, "_find_or_create_log", _adopt_by_name),),
        _DATA | {"DeletedRecordsStayGone", "OnlyDeletedRecordsGo"},
        60,
    ),
    "serving fetches of a deleted topic by its name in random schedules": Planted(
        (Patch(FetchSource, "find", _find_by_name),), _DATA | {"UnknownTopicIdsAreRefused"}, 60
    ),
    "appending batches again that are older than the remembered ones": Planted(
        (Patch(ProducerState, "check", _append_again),), frozenset({"NoDuplicates"}), 60, first=18
    ),
    "accepting a batch of a new producer after the refusal of an earlier one": Planted(
        (Patch(RefusedSequences, "check", _accept_any_sequence),), frozenset({"AcknowledgedIsKnown"}), 200, first=310
    ),
    "serving fetches of a deleted topic by its name": Planted(
        (Patch(FetchSource, "find", _find_by_name),),
        _DATA | {"UnknownTopicIdsAreRefused"},
        5,
        script=fetch_with_deleted_topic_id,
    ),
}


def run_planted(job: tuple[str, int]) -> str | None:
    """Run a bug and a seed, for `campaign.workers`; return the failed invariant, if any."""
    bug, seed = job
    planted = PLANTED[bug]
    if planted.script is not None:
        return run_script(planted.script, seed, planted.patches)
    found = run_seed(seed, EVENTS, planted.patches).found
    return None if found is None else found.invariant
