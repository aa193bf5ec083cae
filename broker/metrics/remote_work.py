"""Metrics of remote work that is refused, and of remote work that waits for a reason other than its own progress.

A refusal is counted when it happens. Waiting work is counted at a scrape, from the state of the tasks: a wait of
several days stays visible.
"""

from collections.abc import Iterable
from typing import Protocol

from broker.metrics.family import Family, Sample
from broker.metrics.remote_storage import CopyBlock, RemoteStorageMetrics


class ReadRefusals(Protocol):
    """The part of the remote reads' figures that the families show."""

    @property
    def refused(self) -> int: ...

    @property
    def waiting_for_quota(self) -> int: ...


def remote_work_families(reads: ReadRefusals, metrics: RemoteStorageMetrics) -> list[Family]:
    """Return the families of refused and of waiting work."""

    def refused() -> Iterable[Sample]:
        yield Sample(reads.refused, {"work": "read", "reason": "queue_full"})
        yield Sample(metrics.refused_deletions, {"work": "delete", "reason": "later_leader"})

    def blocked() -> Iterable[Sample]:
        copies = metrics.blocked_copies()
        yield Sample(reads.waiting_for_quota, {"work": "read", "reason": "quota"})
        for reason in CopyBlock:
            yield Sample(copies.get(reason, 0), {"work": "copy", "reason": reason.value})

    return [
        Family(
            "ottla_remote_work_refused_total",
            "Remote reads that found the queue of readers full, and rounds of deletion or compaction that a later"
            " leader forbids",
            "counter",
            refused,
        ),
        Family(
            "ottla_remote_work_blocked",
            "Remote reads, and partitions with a segment to copy, that wait for a reason",
            "gauge",
            blocked,
        ),
    ]
