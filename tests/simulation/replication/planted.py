"""Bugs that others have had, put into the real parts one at a time, to prove that the checker can fail.

Each takes the place of something for all nodes of a history. `PLANTED` says which rules must notice, and within how
many seeds.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from broker.metadata.controller.replica_changes import ReplicaChanges
from broker.replication import fetcher
from broker.replication import partition as replication_partition
from broker.replication.fetch_actions import FetchedPartition
from broker.replication.fetch_plan import fetch_request
from broker.replication.follower import FollowerRole
from broker.replication.isr import CommittedIsr, PendingIsr
from broker.replication.leader import CommitTerms, FollowerFetch, FollowerProgress, IsrEligibility, LeaderRole
from broker.replication.partition import Assignment, Role
from broker.runtime.controller.broker_lifecycle import BrokerLifecycle
from broker.runtime.partitions import partition_reads
from broker.runtime.partitions.broker_view import MetadataBrokerView
from broker.runtime.partitions.hosted_follower import HostedFollower
from broker.runtime.partitions.partition import Partition
from broker.runtime.replication.replica_fetcher_manager import ReplicaFetcherManager
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import FetchRequest
from storage import recovery
from tests.simulation.replication.campaign import Patch, run_script, run_seed
from tests.simulation.replication.scripts import (
    fetch_of_a_former_life,
    fetch_of_an_unregistered_life,
    follower_from_an_older_epoch,
    parted_below_a_deletion,
    parted_below_a_forgotten_deletion,
)

EVENTS: Final = 2_000


def _without_current_epoch(*args: Any, **kwargs: Any) -> FetchRequest:
    """Followers say in which epoch their last record is, which is what they expect the leader's log to go on from, and
    not in which epoch they believe to be."""
    request = fetch_request(*args, **kwargs)
    for topic in request.topics:
        for each in topic.partitions:
            each.current_leader_epoch = -1
    return request


_followers = replication_partition._followers


def _kept_followers(
    present: Role | None, assignment: Assignment, broker_id: int, now_ms: int, *, is_new_epoch: bool
) -> dict[int, FollowerProgress]:
    """As Kafka does it: who led before knows what followers hold."""
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
    leader: LeaderRole, broker_id: int, follower: FollowerProgress, log_end_offset: int, terms: CommitTerms
) -> bool:
    return broker_id in leader.isr.committed


def _expand_at_high_watermark(
    leader: LeaderRole, broker_id: int, high_watermark: int, is_eligible: IsrEligibility
) -> PendingIsr | None:
    follower = leader.followers.get(broker_id)
    if follower is None or not isinstance(leader.isr, CommittedIsr) or broker_id in leader.isr.committed:
        return None
    if follower.log_end_offset < high_watermark or not is_eligible(broker_id, follower.broker_epoch):
        return None
    leader.isr = leader.isr.propose_expand(broker_id)
    return leader.isr


_on_follower_fetch = LeaderRole.on_follower_fetch


def _take_any_life(
    leader: LeaderRole, fetch: FollowerFetch, log_end_offset: int, now_ms: int, registered_broker_epoch: int
) -> ErrorCode:
    return _on_follower_fetch(leader, fetch, log_end_offset, now_ms, -1)


def _active_in_any_life(changes: ReplicaChanges, members: Any) -> None:
    for broker_id, _ in members:
        if not changes._state.is_active(broker_id):
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)


def _eligible_in_any_life(view: MetadataBrokerView, broker_id: int, broker_epoch: int) -> bool:
    broker = view._metadata.image.brokers.get(broker_id)
    return broker is not None and broker.is_active


async def _no_wait(lifecycle: BrokerLifecycle) -> None:
    """As if the own registration were read."""


def _begin_at_once(fetchers: ReplicaFetcherManager) -> None:
    held, fetchers._not_begun = fetchers._not_begun, None
    for partition in (held or {}).values():
        fetchers.follow(partition)


_on_divergence = fetcher.FetcherCore._on_divergence


def _cut_only(core: fetcher.FetcherCore[Any], fetched: FetchedPartition[Any], work: Any, now_ms: int) -> None:
    """As Kafka does it: wherever the leader's log begins."""
    fetched.data.log_start_offset = -1
    _on_divergence(core, fetched, work, now_ms)


class Planted(NamedTuple):
    """A bug, the rules of which one must notice, and among how many seeds, from `first` on, it must happen.

    `first` is chosen near a seed that notices, for speed; `seeds` is the bound when histories come to differ. What is
    too rare for that is shown by a script.
    """

    patches: tuple[Patch, ...]
    catchers: frozenset[str]
    seeds: int
    first: int = 1
    script: Callable[[int], None] | None = None


_DATA: Final = frozenset(
    {"StrongIsr", "LeaderCompleteness", "LogsMatch", "CommittedIsFinal", "AcknowledgedIsCommitted"}
)

PLANTED: Final[Mapping[str, Planted]] = {
    "KIP-320's first try: fetching with the epoch of the last record only": Planted(
        (Patch(fetcher, "fetch_request", _without_current_epoch),), _DATA, 10, script=follower_from_an_older_epoch
    ),
    "not checking the leader epoch": Planted(
        (Patch(partition_reads, "check_leader_epoch", lambda *_: ErrorCode.NONE),),
        _DATA,
        10,
        script=follower_from_an_older_epoch,
    ),
    "keeping what followers held over a skipped epoch": Planted(
        (Patch(replication_partition, "_followers", _kept_followers),), _DATA, 10, script=follower_from_an_older_epoch
    ),
    "taking fetches of a broker's former life": Planted(
        (
            Patch(LeaderRole, "on_follower_fetch", _take_any_life),
            Patch(MetadataBrokerView, "is_isr_eligible", _eligible_in_any_life),
            Patch(ReplicaChanges, "_check_eligible", _active_in_any_life),
        ),
        _DATA,
        60,
        script=fetch_of_a_former_life,
    ),
    "fetching before the broker is registered": Planted(
        (
            Patch(BrokerLifecycle, "wait_caught_up", _no_wait),
            Patch(ReplicaFetcherManager, "begin", _begin_at_once),
        ),
        _DATA,
        20,
        script=fetch_of_an_unregistered_life,
    ),
    "truncating to the high watermark": Planted((Patch(Partition, "_begin_epoch", _cut_at_high_watermark),), _DATA, 50),
    "committing what the confirmed in-sync set has": Planted(
        (Patch(LeaderRole, "_must_hold", _must_hold_if_confirmed),), _DATA, 50
    ),
    "admitting who has not reached the start of the epoch": Planted(
        (Patch(LeaderRole, "propose_expand", _expand_at_high_watermark),), _DATA, 150, first=50
    ),
    "counting fenced and leaving replicas in": Planted(
        (
            Patch(MetadataBrokerView, "is_isr_eligible", lambda *_: True),
            Patch(ReplicaChanges, "_check_eligible", lambda *_: None),
        ),
        frozenset({"MembersAreActive"}),
        50,
    ),
    "telling of records before they are flushed": Planted(
        (Patch(HostedFollower, "is_flushed", property(lambda _: True)),), frozenset({"ToldIsFlushed"}), 50
    ),
    "not checking the epoch of the last fetched record": Planted(
        (Patch(partition_reads, "_divergence", lambda *_: None),), _DATA, 100
    ),
    "keeping what is below all that the leader has": Planted(
        (Patch(fetcher.FetcherCore, "_on_divergence", _cut_only),), _DATA, 5, script=parted_below_a_deletion
    ),
    "not restoring the epochs of records that a crash brings back": Planted(
        (Patch(recovery, "_restore_first_epochs", lambda *_: None),), _DATA, 5, script=parted_below_a_forgotten_deletion
    ),
}


def run_planted(job: tuple[str, int]) -> str | None:
    """A bug and a seed, for `campaign.workers`: the rule that is broken, if any."""
    bug, seed = job
    planted = PLANTED[bug]
    if planted.script is not None:
        return run_script(planted.script, seed, planted.patches)
    found = run_seed(seed, EVENTS, planted.patches).found
    return None if found is None else found.invariant
