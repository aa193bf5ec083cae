"""Rules about the metadata quorum: its leader, and voters that lag or are gone. Pure."""

from collections.abc import Iterator
from typing import Final

from broker.cli.diagnosis.facts import ClusterFacts, MetadataQuorumFacts, VoterFacts
from broker.cli.diagnosis.finding import ClusterFinding, Severity, counted, listed

SILENCE_MS_MAX: Final = 10_000
"""Time without a fetch, or behind the leader's end, after which a voter counts as gone or lagging."""

_DESCRIBE: Final = "ottla metadata-quorum describe --replication --human-readable"


def quorum_findings(facts: ClusterFacts) -> Iterator[ClusterFinding]:
    """Yield the findings about the quorum."""
    quorum = facts.quorum
    if quorum is None:
        return
    if quorum.leader_id < 0:
        reason = f" ({quorum.failure})" if quorum.failure else ""
        yield ClusterFinding(
            Severity.CRITICAL,
            "no-active-controller",
            "the metadata quorum",
            f"No active controller is known{reason}. Topics, leaders and configurations cannot change, and brokers "
            "that restart cannot register.",
            "Start enough controllers for a majority of the voters, and look at their logs for failed elections.",
            "ottla metadata-quorum describe --status",
        )
        return
    now_ms = max((each.last_fetch_ms for each in (*quorum.voters, *quorum.observers)), default=-1)
    gone = [each for each in quorum.voters if _is_gone(each, quorum, now_ms)]
    if gone:
        yield _gone(quorum, gone)
    lagging = [
        each
        for each in quorum.voters
        if each not in gone and each.id != quorum.leader_id and now_ms - each.last_caught_up_ms > SILENCE_MS_MAX
    ]
    if lagging and now_ms >= 0:
        worst = max(quorum.end_offset - each.log_end_offset for each in lagging)
        yield ClusterFinding(
            Severity.WARNING,
            "lagging-voters",
            f"voters {listed([each.id for each in lagging])}",
            f"{counted(len(lagging), 'voter')} of the metadata quorum fetch but have not caught up for more than "
            f"{SILENCE_MS_MAX // 1000} s; the slowest is {worst:,} records behind.",
            "Look at the disk (fsync times) and the network of these controllers.",
            _DESCRIBE,
            len(lagging),
            [str(each.id) for each in lagging],
        )


def _gone(quorum: MetadataQuorumFacts, gone: list[VoterFacts]) -> ClusterFinding:
    left = len(quorum.voters) - len(gone)
    spare = left - (len(quorum.voters) // 2 + 1)
    margin = "No further voter may fail." if spare <= 0 else f"{counted(spare, 'further voter')} may fail."
    ids = [each.id for each in gone]
    return ClusterFinding(
        Severity.CRITICAL if spare < 0 else Severity.WARNING,
        "missing-voters",
        f"voters {listed(ids)}" if len(ids) > 1 else f"voter {ids[0]}",
        f"{counted(len(gone), 'voter')} of {len(quorum.voters)} in the metadata quorum did not fetch for more than "
        f"{SILENCE_MS_MAX // 1000} s: {listed(ids)}. {margin}",
        "Start these controllers. Remove a controller that is gone for good from the voters, and add its successor.",
        _DESCRIBE,
        len(gone),
        [str(id) for id in ids],
    )


def _is_gone(voter: VoterFacts, quorum: MetadataQuorumFacts, now_ms: int) -> bool:
    if voter.id == quorum.leader_id or now_ms < 0:
        return False
    return now_ms - voter.last_fetch_ms > SILENCE_MS_MAX
