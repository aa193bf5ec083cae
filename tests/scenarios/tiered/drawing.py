"""Drawing of a cluster: one column per broker and one for remote storage, as in KIP-405.

B follows A
log 0-8, local from 3, HW 8
  3: m3 LE-1
epochs LE-0@0 LE-1@3
"""

from collections.abc import Iterable
from itertools import zip_longest

from storage.log import Log
from storage.tiered.segment_metadata import RemoteSegment
from tests.scenarios.tiered.broker import Broker
from tests.scenarios.tiered.harness import ScenarioCluster, name_of
from tests.support.fakes.batches import iter_all_records

GAP = "   "


def draw(cluster: ScenarioCluster) -> str:
    """Return the columns side by side, without trailing blanks."""
    columns = [_broker(broker) for broker in cluster.brokers.values()] + [_remote(cluster)]
    widths = [max(map(len, column)) for column in columns]
    rows = zip_longest(*columns, fillvalue="")
    return "\n".join(
        GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _broker(broker: Broker) -> list[str]:
    if not broker.is_running:
        return [f"{broker.name} is stopped"]
    return [_role(broker), *_log(broker.log)]


def _role(broker: Broker) -> str:
    if broker.is_leading:
        return f"{broker.name} leads LE-{broker.leader_epoch}"
    return f"{broker.name} follows {broker.leader.name}" if broker.leader is not None else f"{broker.name} is idle"


def _log(log: Log) -> list[str]:
    disk = f", local from {log.local_log_start_offset}" if log.local_log_start_offset > log.log_start_offset else ""
    return [
        f"log {log.log_start_offset}-{log.log_end_offset}{disk}, HW {log.high_watermark}",
        *_records(b"".join(segment.file.read(0, segment.size) for segment in log.segments), log.log_start_offset),
        f"epochs {_epochs(log.epochs.entries)}",
    ]


def _remote(cluster: ScenarioCluster) -> list[str]:
    lines = ["remote storage"]
    for segment in cluster.segments():
        lines += _segment(cluster, segment)
    return lines


def _segment(cluster: ScenarioCluster, segment: RemoteSegment) -> Iterable[str]:
    yield f"{name_of(segment)} [{segment.start_offset}-{segment.end_offset}] {_epochs(segment.leader_epochs)}"
    yield from _records(b"".join(cluster.storage.read_segment(segment, 0)), 0)
    yield f"  epochs {_epochs(cluster.history_in(segment))}"


def _records(data: bytes, start: int) -> list[str]:
    return [
        f"  {record.offset}: {(record.value or b'').decode()} LE-{header.leader_epoch}"
        for header, record in iter_all_records(data)
        if record.offset >= start
    ]


def _epochs(entries: Iterable[tuple[int, int]]) -> str:
    return " ".join(f"LE-{epoch}@{start}" for epoch, start in entries) or "unknown"
