"""Invariants of a quiet tier: remote leader epochs equal the leaders', and bucket and metadata agree.

`settle` waits until brokers are idle. Leftovers are then collected with `ottla remote collect`, after which none may
remain. Each check returns violations as text.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from broker.client import ClientError
from protocol.errors import KafkaError
from storage.tiered.segment_metadata import RemoteSegment, SegmentState
from tests.support.clients.partition_states import partition_states
from tests.support.clients.remote_storage_view import RemoteStorageView, clipped
from tests.support.clients.replicated_load import admin_of

SETTLE_S = 90.0
# Longer than the intervals of copying, expiration and log cleaning together.
STEADY_S = 6.0
POLL_S = 1.0
LOOKS = 3


def settle(tier: RemoteStorageView, topics: Sequence[str]) -> Mapping[SegmentState, int] | None:
    """Wait until nothing changes for a while. Return the number of segments per state, None on timeout."""
    deadline, known, since = time.monotonic() + SETTLE_S, None, time.monotonic()
    while True:
        now = {each.id.id: each.state for each in _segments(tier, topics)}
        if now != known:
            known, since = now, time.monotonic()
        if time.monotonic() - since > STEADY_S:
            return Counter(now.values())
        if time.monotonic() > deadline:
            return None
        time.sleep(POLL_S)


def _segments(tier: RemoteStorageView, topics: Sequence[str]) -> list[RemoteSegment]:
    deadline = time.monotonic() + SETTLE_S
    while True:
        try:
            return [each for each in tier.segments() if each.id.partition.topic in topics]
        except (ClientError, KafkaError):
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def epoch_faults(tier: RemoteStorageView, topics: Sequence[str]) -> tuple[int, list[str]]:
    """Return the number of compared finished segments, and violations: leader epochs that differ from the leader's
    checkpoint above the log start offset, and gaps in the remote log."""
    segments = [each for each in _segments(tier, topics) if each.state is SegmentState.COPY_FINISHED]
    faults: list[str] = []
    for topic in topics:
        states, bounds = partition_states(admin_of(tier.bootstrap), topic), tier.bounds(topic)
        for partition, state in states.items():
            start, local_start = bounds[partition].start, bounds[partition].local_start
            if start is None or local_start is None:
                faults.append(f"{topic}-{partition}: no broker returns the log start offset")
                continue
            epochs = tier.leader_epochs(state.leader, topic, partition)
            mine = [each for each in segments if each.id.partition[1:] == (topic, partition)]
            faults += chain_faults(mine, epochs, start)
            faults += gaps(f"{topic}-{partition}", mine, start, local_start)
    return len(segments), faults


def chain_faults(segments: Sequence[RemoteSegment], epochs: list[tuple[int, int]], start: int) -> list[str]:
    """Return segments whose epochs differ from the leader's `epochs`, which start at the log start offset `start`."""
    found = []
    for each in segments:
        first = max(each.start_offset, start)
        if first > each.end_offset:
            continue
        theirs = clipped(list(each.leader_epochs), first, each.end_offset)
        if theirs != (own := clipped(epochs, first, each.end_offset)):
            found.append(f"{each.id} has leader epochs {theirs} from {first} on, the leader {own}")
    return found


def retention_faults(where: str, kept: int, start: int, asked: int, least: int) -> list[str]:
    """Return a violation if retention raised the log start offset and left fewer than `least` records. DeleteRecords
    requested the log start offset `asked`."""
    if start <= asked or kept >= least:
        return []
    return [f"{where}: only {kept} records are left from {start} on, retention must keep {least}"]


def gaps(where: str, segments: Sequence[RemoteSegment], start: int, local_start: int) -> list[str]:
    """Return gaps between log start offset and local log start offset that no remote segment covers."""
    found, reached = [], start
    for each in sorted(segments, key=lambda each: each.start_offset):
        if each.start_offset > reached and reached < local_start:
            found.append(f"{where}: no remote segment from {reached} to {each.start_offset}")
        reached = max(reached, each.end_offset + 1)
    if reached < local_start:
        found.append(f"{where}: neither remote nor local from {reached} to {local_start}")
    return found


def bucket_faults(tier: RemoteStorageView) -> tuple[str, list[str]]:
    """Collect leftovers. Return the command's result, and the objects without metadata and segments without objects.

    Bucket and metadata are not read atomically, so a violation must be found repeatedly.
    """
    collected = tier.remote("collect", "--grace-ms", "0", check=False).strip()
    faults = _differences(tier)
    for _ in range(LOOKS - 1):
        if faults:
            time.sleep(STEADY_S)
            faults = _differences(tier)
    return collected.splitlines()[-1] if collected else "no output", faults


def _differences(tier: RemoteStorageView) -> list[str]:
    verified = tier.remote("verify", "--grace-ms", "0", "--deep", check=False).strip()
    there, expected = tier.bucket().segments, tier.expected_objects()
    faults = [f"in the bucket without metadata: {key}" for key in sorted(there - expected)]
    faults += [f"in metadata without an object: {key}" for key in sorted(expected - there)]
    if "finding(s)" in verified or " live" not in verified:
        faults.append(f"verify: {verified[-500:]}")
    return faults
