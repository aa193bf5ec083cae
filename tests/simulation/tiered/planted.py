"""Bugs on purpose, each of a kind that Kafka had or nearly had: the simulation must find every one of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from broker.runtime.remote_copying import Attempt, SegmentCopying
from broker.runtime.remote_expiration import SegmentExpiration
from broker.runtime.remote_segments import RemoteSegments
from storage.tiered.copying import ClosedSegment, CopyLag
from storage.tiered.expiry import Tier
from storage.tiered.segment_chain import Link
from storage.tiered.segment_metadata import RemoteSegment

Planted = Callable[[], Iterator[None]]


def local_deletion_before_copy_finished() -> Iterator[None]:
    """A segment may leave the disk as soon as its copy begins."""
    advance = SegmentCopying._advance

    async def eager(self: SegmentCopying, attempt: Attempt) -> None:
        self._reign.partition.log.highest_remote_offset = attempt.segment.end_offset
        await advance(self, attempt)

    with patch.object(SegmentCopying, "_advance", eager):
        yield


def copy_beyond_the_last_stable_offset() -> Iterator[None]:
    """Any closed segment is copied, committed or not."""

    def at_once(segment: ClosedSegment, last_stable_offset: int, lag: CopyLag, now_ms: int) -> bool:
        return True

    with patch("broker.runtime.remote_copying.may_be_copied", at_once):
        yield


def expiration_without_raising_the_log_start() -> Iterator[None]:
    """Expired segments are deleted, and the log goes on to claim them."""

    def keep(self: SegmentExpiration, offset: int) -> None:
        return

    with patch.object(SegmentExpiration, "_raise_log_start", keep):
        yield


def size_retention_counts_twice() -> Iterator[None]:
    """Kafka: what is here and there counts twice, for a leader that does not know how far it has copied."""

    def both(tier: Tier, links: list[Link]) -> int:
        return sum(link.segment.size_bytes for link in links) + sum(part.size_bytes for part in tier.local)

    with patch("storage.tiered.expiry._total_bytes", both):
        yield


def crashed_copies_stay() -> Iterator[None]:
    """Kafka: what was begun and never ended is left to retention."""
    with patch("storage.tiered.expiry._is_abandoned", lambda tier, segment: False):
        yield


def failed_copies_stay() -> Iterator[None]:
    """An event is said for the deletion of a failed copy, and nothing deleted."""

    async def forget(self: RemoteSegments, segment: RemoteSegment) -> None:
        return

    with patch.object(RemoteSegments, "discard", forget):
        yield


PLANTED: dict[str, Planted] = {
    each.__name__: each
    for each in (
        local_deletion_before_copy_finished,
        copy_beyond_the_last_stable_offset,
        expiration_without_raising_the_log_start,
        size_retention_counts_twice,
        crashed_copies_stay,
        failed_copies_stay,
    )
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    yield from PLANTED[name]()
