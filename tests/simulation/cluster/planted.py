"""Known kinds of bugs of controllers and of metadata, planted one at a time.

Each replaces code on all nodes of a history. `PLANTED` names the invariants of which one must fail, and the number of
seeds within which it must.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from broker.clock import Clock
from broker.metadata.controller import replica_changes
from broker.metadata.controller.broker_sessions import BrokerSessions
from broker.metadata.controller.brokers import Brokers
from broker.metadata.controller.controller import Controller
from broker.metadata.controller.leader_and_isr_updates import LeaderAndIsrUpdates
from broker.metadata.image.cluster_image import BrokerRegistration
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.loader import Publication
from broker.metadata.image.metadata_version import MetadataVersion
from broker.metadata.image.partition import PartitionRegistration
from broker.metadata.image.records import VersionedRecord
from broker.metadata.snapshot.load import LoadedSnapshot
from broker.replication.leader import CommitTerms, FollowerProgress, LeaderRole
from broker.runtime.controller.driver import ControllerDriver
from broker.runtime.quorum.quorum import CommittedBatch
from broker.runtime.remote_log.leadership_term import LeadershipTerm
from broker.runtime.remote_log.segments import RemoteSegments
from broker.runtime.remote_log.term_fence import TermFence
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import BrokerEpoch, BrokerId
from protocol.messages.alter_partition import AlterPartitionRequestPartitionData
from protocol.messages.metadata_records import PartitionChangeRecord, RegisterBrokerRecord
from storage import retention
from storage.tiered.bucket.partition_objects import PartitionObjects
from storage.tiered.errors import RemoteStorageError
from storage.tiered.format import log_start_object
from storage.tiered.format.log_start_object import LogStartWriter
from storage.tiered.lifecycle import expiration
from tests.simulation.cluster.acls.planted import PLANTED_ACLS
from tests.simulation.cluster.campaign import run_deposed_leaders
from tests.simulation.cluster.planted_bug import Planted
from tests.simulation.cluster.planted_coordinators import PLANTED_COORDINATORS
from tests.simulation.cluster.planted_tier import PLANTED_TIER
from tests.simulation.replication.campaign import Patch

EVENTS: Final = 2_000

_on_commit = ControllerDriver.on_commit
_on_leader_change = ControllerDriver.on_leader_change
_init_driver = ControllerDriver.__init__
_merge = PartitionRegistration.merge
_start_session = BrokerSessions.start
_activate = Controller.activate
_load_snapshot = Controller.load_snapshot
_must_hold = LeaderRole._must_hold
_upload = RemoteSegments.upload
_to_record = BrokerRegistration.to_record


def _skip_tail(driver: ControllerDriver, batches: Sequence[CommittedBatch]) -> None:
    """Ignore what is committed between the election and the takeover."""
    is_elected = driver.leader.leader_id == driver._quorum.node_id
    if driver.is_active or not is_elected:
        _on_commit(driver, batches)


def _keep_decisions(controller: Controller) -> None:
    """Keep uncommitted decisions after a loss of leadership."""
    controller._uncommitted.clear()


def _look_for_former_leaders(writer: LogStartWriter) -> None:
    """Look for no later leader."""
    epochs = writer._object.epochs()
    writer._written = None if epochs or writer._leader_epoch > 0 else 0
    writer._older = bool(epochs)


class _WallClock:
    """A clock whose monotonic time is the wall time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic_ms(self) -> float:
        return float(self._clock.now_ms())


def _init_with_wall_clock(driver: ControllerDriver, *args: Any, **kwargs: Any) -> None:
    _init_driver(driver, *args, **kwargs)
    driver._clock = _WallClock(driver._clock)


def _merge_in_same_epoch(registration: PartitionRegistration, change: PartitionChangeRecord) -> PartitionRegistration:
    return _merge(registration, change)._replace(leader_epoch=registration.leader_epoch)


def _check_leader_epoch_only(
    before: PartitionRegistration, sender: int, requested: AlterPartitionRequestPartitionData
) -> None:
    if requested.leader_epoch != before.leader_epoch or sender != before.leader:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)


def _registered_in_any_epoch(brokers: Brokers, broker_id: BrokerId, epoch: BrokerEpoch) -> BrokerRegistration:
    broker = brokers._state.image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    return broker


def _start_missing_session(sessions: BrokerSessions, broker_id: BrokerId, epoch: BrokerEpoch, **rest: Any) -> None:
    known = sessions._sessions.get(broker_id)
    if known is None or known.epoch != epoch or known.fenced != rest["fenced"]:
        _start_session(sessions, broker_id, epoch, **rest)


def _activate_without_sessions(controller: Controller, *args: Any, **kwargs: Any) -> Any:
    result = _activate(controller, *args, **kwargs)
    controller._state.sessions.clear()
    return result


def _load_without_delta(controller: Controller, loaded: LoadedSnapshot) -> Publication:
    before = controller.committed_image
    return Publication(MetadataDelta(before), _load_snapshot(controller, loaded).image)


def _write_unfenced(broker: BrokerRegistration, version: MetadataVersion) -> VersionedRecord:
    record = _to_record(broker, version)
    assert isinstance(record.message, RegisterBrokerRecord)
    record.message.fenced = False
    return record


def _respond_at_once(driver: ControllerDriver, outcome: Any, future: Any) -> None:
    """Respond before the commit."""
    if future is not None and not future.done():
        future.set_result(outcome.response)


def _change_nothing(updates: LeaderAndIsrUpdates, broker: int) -> Iterable[VersionedRecord]:
    return ()


def _commit_alone(
    role: LeaderRole, broker_id: BrokerId, follower: FollowerProgress, log_end_offset: int, terms: CommitTerms
) -> bool:
    """Wait for no replica once all are silent: they may fetch from the successor."""
    is_silent = not any(
        each.is_caught_up(log_end_offset, terms.now_ms, terms.lag_time_max_ms) for each in role.followers.values()
    )
    return not is_silent and _must_hold(role, broker_id, follower, log_end_offset, terms)


async def _upload_and_ignore_errors(segments: RemoteSegments, *args: Any, **kwargs: Any) -> bytes | None:
    """Finish a copy whose upload failed."""
    try:
        return await _upload(segments, *args, **kwargs)
    except RemoteStorageError:
        return None


async def _may_delete_in_term(fence: TermFence, term: LeadershipTerm) -> bool:
    """Look for no later leader before a deletion."""
    return not term.is_over()


def _knows_own_term(fence: TermFence, term: LeadershipTerm) -> bool:
    return term.is_over()


_EPOCHS: Final = frozenset({"EpochsRise", "OneLeaderPerEpoch", "LogsMatch", "CommittedIsFinal"})

PLANTED: Final[Mapping[str, Planted]] = {
    **PLANTED_TIER,
    **PLANTED_COORDINATORS,
    **PLANTED_ACLS,
    "taking over without the tail of the log": Planted(
        (Patch(ControllerDriver, "on_commit", _skip_tail),), frozenset({"TakeoverHasEverything", "ImagesAreEqual"}), 5
    ),
    "keeping uncommitted decisions after losing the leadership": Planted(
        (Patch(Controller, "revert", _keep_decisions),),
        frozenset({"TakeoverHasEverything", "ImagesAreEqual", "NodesDoNotFail", "ControllerStateIsImage"}),
        50,
        first=4,
    ),
    "measuring sessions by the wall clock": Planted(
        (Patch(ControllerDriver, "__init__", _init_with_wall_clock),),
        frozenset({"LiveBrokersStayUnfenced", "SilentBrokersAreFenced"}),
        20,
        first=3,
    ),
    "electing a leader in the same leader epoch": Planted(
        (Patch(PartitionRegistration, "merge", _merge_in_same_epoch),), _EPOCHS, 10
    ),
    "accepting AlterPartition with an old partition epoch": Planted(
        (Patch(replica_changes, "_check_epochs", _check_leader_epoch_only),),
        frozenset({"StaleRequestsAreRefused", "StrongIsr", "LeaderCompleteness"}),
        100,
        first=11,
    ),
    "accepting heartbeats with an old broker epoch": Planted(
        (Patch(Brokers, "_registered", _registered_in_any_epoch),),
        frozenset({"StaleRequestsAreRefused"}),
        150,
        first=59,
    ),
    "keeping the session table over a takeover": Planted(
        (Patch(BrokerSessions, "clear", lambda _: None), Patch(BrokerSessions, "start", _start_missing_session)),
        frozenset({"LiveBrokersStayUnfenced", "ControllerStateIsImage"}),
        50,
        first=15,
    ),
    "starting no sessions at a takeover": Planted(
        (Patch(Controller, "activate", _activate_without_sessions),),
        frozenset({"SilentBrokersAreFenced", "ControllerStateIsImage"}),
        10,
    ),
    "registering another process over a live broker": Planted(
        (Patch(BrokerSessions, "is_live", lambda *_, **__: False),),
        frozenset({"StaleRequestsAreRefused"}),
        50,
        first=2,
    ),
    "registering an ended process over its successor": Planted(
        (Patch(BrokerSessions, "is_presumed", lambda *_: True),), frozenset({"StaleRequestsAreRefused"}), 20, first=3
    ),
    "fencing a running broker by a heartbeat of its start": Planted(
        (Patch(BrokerSessions, "precedes_unfencing", lambda *_: False),),
        frozenset({"LiveBrokersStayUnfenced"}),
        50,
        first=3,
    ),
    "dropping the delta of a loaded snapshot": Planted(
        (Patch(Controller, "load_snapshot", _load_without_delta),), frozenset({"ImagesAreEqual"}), 20, first=2
    ),
    "writing fenced brokers as unfenced into snapshots": Planted(
        (Patch(BrokerRegistration, "to_record", _write_unfenced),),
        frozenset({"ImagesAreEqual", "TakeoverHasEverything"}),
        50,
    ),
    "leaving fenced brokers in the ISR": Planted(
        (Patch(LeaderAndIsrUpdates, "broker_removed", _change_nothing),), frozenset({"MembersAreUnfenced"}), 10, first=2
    ),
    "electing no leaders when a broker is unfenced": Planted(
        (Patch(LeaderAndIsrUpdates, "broker_unfenced", _change_nothing),),
        frozenset({"EligibleReplicasLead", "Liveness"}),
        40,
        first=2,
    ),
    "deleting local segments before they are copied": Planted(
        (Patch(retention, "_is_remote", lambda *_: True),), frozenset({"TierReadable"}), 20, first=2
    ),
    "advancing the high watermark of a deposed leader": Planted(
        (Patch(LeaderRole, "_must_hold", _commit_alone),),
        frozenset({"CommittedIsFinal", "StrongIsr", "LeaderCompleteness", "AcknowledgedIsCommitted", "LogsMatch"}),
        10,
        first=2,
    ),
    "responding before the commit": Planted(
        (Patch(ControllerDriver, "_complete_after_commit", _respond_at_once),),
        frozenset({"AcknowledgedMetadataIsKept"}),
        20,
        first=3,
    ),
    "finishing copies whose upload failed": Planted(
        (Patch(RemoteSegments, "upload", _upload_and_ignore_errors),), frozenset({"TierReadable"}), 20, first=2
    ),
    "deleting segments of later leader epochs": Planted(
        (
            Patch(TermFence, "may_delete", _may_delete_in_term),
            Patch(TermFence, "knows_later_term", _knows_own_term),
            Patch(PartitionObjects, "is_superseded", lambda *_: False),
            Patch(log_start_object, "has_later_leader", lambda *_: False),
            Patch(LogStartWriter, "_look", _look_for_former_leaders),
            Patch(expiration, "is_of_later_term", lambda *_: False),
        ),
        frozenset({"NoForeignDeletions"}),
        150,
        first=43,
        run=run_deposed_leaders,
    ),
}
