"""The report of an audit: a line per finding, and a summary."""

from collections import Counter
from collections.abc import Iterator

from broker.cli.tiering.remote_partitions import age
from protocol.primitives import uuid_to_text
from storage.tiered.bucket.audit import PartitionReport, summary
from storage.tiered.bucket.reconcile import IN_ORDER, AuditedSegment, Finding
from storage.tiered.object_store import ObjectInfo


def lines(report: PartitionReport) -> Iterator[str]:
    """Yield the findings of a partition."""
    if report.is_foreign:
        return
    name = _name(report)
    if report.is_left_behind:
        metadata = "has metadata" if report.is_recorded else "has no metadata"
        yield f"{name}: not a partition of the cluster, and no deletion is recorded; {metadata}"
    for verdict in report.segments:
        if verdict.finding not in IN_ORDER:
            yield verdict_line(report, verdict)
    for info in report.unrecognized:
        yield f"{name}: unrecognized object: {info.key} ({info.size} bytes)"


def remedy_lines(report: PartitionReport) -> Iterator[str]:
    """Yield the way out for lost segments."""
    if report.exists and report.of(Finding.DANGLING):
        where = f"--topic {report.partition.topic} --partition {report.partition.partition}"
        yield f"{_name(report)}: dangling segments stop consumers, and `ottla remote give-up {where}` lets them go on"


def verdict_line(report: PartitionReport, verdict: AuditedSegment) -> str:
    """Return the line of a segment."""
    known = verdict.segment or verdict.objects
    assert known is not None, "a finding has a segment or objects"
    what = f"{verdict.finding.value}: {known.start_offset:020d}-{uuid_to_text(known.id.id)}"
    if verdict.missing and verdict.finding is Finding.DANGLING:
        what += f", missing {', '.join(suffix.value for suffix in verdict.missing)}"
    size = 0 if verdict.objects is None else verdict.objects.size_bytes
    return f"{_name(report)}: {what} ({size} bytes, {age(0, verdict.age_ms)} old)"


def _name(report: PartitionReport) -> str:
    return f"{report.partition} ({uuid_to_text(report.partition.topic_id)})"


def document(report: PartitionReport) -> dict[str, object]:
    return {
        "topic": report.partition.topic,
        "topicId": uuid_to_text(report.partition.topic_id),
        "partition": report.partition.partition,
        "exists": report.exists,
        "recorded": report.is_recorded,
        "deleted": report.is_deleted,
        "foreign": report.is_foreign,
        "inOrder": report.is_in_order,
        "segments": {finding.value: count for finding, count in summary([report]).items() if count},
        "findings": [verdict_document(each) for each in report.segments if each.finding not in IN_ORDER],
        "unrecognized": [_object(info) for info in report.unrecognized],
    }


def verdict_document(verdict: AuditedSegment) -> dict[str, object]:
    known = verdict.segment or verdict.objects
    assert known is not None, "a finding has a segment or objects"
    return {
        "finding": verdict.finding.value,
        "segmentId": uuid_to_text(known.id.id),
        "startOffset": known.start_offset,
        "state": None if verdict.segment is None else verdict.segment.state.name,
        "bytes": 0 if verdict.objects is None else verdict.objects.size_bytes,
        "ageMs": verdict.age_ms,
        "missing": [suffix.value for suffix in verdict.missing] if verdict.finding is Finding.DANGLING else [],
    }


def _object(info: ObjectInfo) -> dict[str, object]:
    return {"key": info.key, "bytes": info.size}


class AuditSummary:
    """Summary of partition reports, which are not kept. Partitions of other clusters are counted separately."""

    def __init__(self) -> None:
        self.finding_count = 0
        self._own = 0
        self._foreign = 0
        self._segments: Counter[Finding] = Counter()

    def add(self, report: PartitionReport) -> list[str]:
        """Count a report and return its lines."""
        if report.is_foreign:
            self._foreign += 1
            return []
        found = list(lines(report))
        self._own += 1
        self._segments.update(verdict.finding for verdict in report.segments)
        self.finding_count += len(found)
        return [*found, *remedy_lines(report)]

    def line(self) -> str:
        named = [f"{self._segments[finding]} {finding.value}" for finding in Finding if self._segments[finding]]
        text = f"{self._own} partitions: {', '.join(named) or 'no segments'}"
        return f"{text}; {self._foreign} partitions belong to another cluster" if self._foreign else text
