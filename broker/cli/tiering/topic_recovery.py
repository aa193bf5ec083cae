"""Execution of recovery plans (`storage/tiered/bucket/recovery_plan.py`) for `ottla remote recover`, in five steps:

1. Validate with the controller that the topic can be restored, so that no step starts in vain.
2. Publish missing events, so that each leader finds its remote segments.
3. Write raised log start offsets to the bucket.
4. Restore the topic under its id. Leader epochs exceed all epochs seen; the log continues after the last remote offset.
5. Verify the log bounds.

Each step is reported when it is done. A repeated run finds completed steps done.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from broker.cli.shared.failure import CommandFailed
from broker.cli.tiering.bucket import RemoteBucket
from broker.cli.tiering.cluster import Cluster
from broker.client import Client, raise_for
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch
from protocol.messages.restore_topics import (
    RestorableTopic,
    RestorableTopicConfig,
    RestoreTopicsRequest,
    RestoreTopicsResponse,
)
from protocol.primitives import uuid_to_text
from storage.tiered.bucket.recovery_plan import PartitionPlan, RecoveryOptions, TopicPlan
from storage.tiered.catalog.metadata_journal import Event, MetadataJournal
from storage.tiered.format.log_start_object import LogStart, encode_log_start, log_start_object
from storage.tiered.segment_metadata import PartitionDelete, RemoteSegmentId

SEGMENTS_PER_BATCH = 500
"""Segments per batch, with two events of about 200 bytes each: a fifth of the default maximum batch size."""

CHECK_INTERVAL_S = 0.2

ProgressCallback = Callable[[str], None]


class TopicRecovery:
    """Executor of plans. `on_progress` receives a message per step; `timeout_s` limits the verification.

    Raises errors of the client and the store, and CommandFailed.
    """

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        journal: MetadataJournal,
        bucket: RemoteBucket,
        options: RecoveryOptions,
        *,
        on_progress: ProgressCallback,
        timeout_s: float,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._journal = journal
        self._bucket = bucket
        self._options = options
        self._on_progress = on_progress
        self._timeout_s = timeout_s

    def execute(self, plan: TopicPlan) -> None:
        """Execute a plan without refusals."""
        assert not plan.refusals, "a plan with refusals is not executed"
        if plan.exists:
            self._publish(plan)
            return
        self._restore(plan, validate_only=True)
        self._publish(plan)
        self._raise_log_starts(plan)
        self._restore(plan)
        self._on_progress(
            f"{plan.topic}: restored as {uuid_to_text(plan.topic_id)} with {len(plan.partitions)} partitions from"
            f" leader epoch {plan.leader_epoch}"
        )
        self._verify(plan)

    def _publish(self, plan: TopicPlan) -> None:
        for partition in plan.partitions:
            for batch in batches(partition.events):
                self._journal.publish(partition.partition, batch)
            if partition.events:
                self._on_progress(f"{partition.partition}: published {len(partition.events)} segment events")

    def _raise_log_starts(self, plan: TopicPlan) -> None:
        for partition in plan.partitions:
            if partition.raised_log_start is not None:
                self._write_log_start(plan, partition, partition.raised_log_start)
                self._on_progress(f"{partition.partition}: raised the log start offset to {partition.raised_log_start}")

    def _write_log_start(self, plan: TopicPlan, partition: PartitionPlan, offset: int) -> None:
        log_start = LogStart(
            log_start_offset=offset,
            leader_epoch=LeaderEpoch(plan.object_epoch),
            cluster_id=self._options.cluster_id,
            broker_id=self._options.broker_id,
            timestamp_ms=self._options.now_ms,
        )
        target = log_start_object(self._bucket.store, self._bucket.keys.partition(partition.partition))
        target.write(plan.object_epoch, encode_log_start(log_start))

    def _restore(self, plan: TopicPlan, *, validate_only: bool = False) -> None:
        topic = RestorableTopic(
            name=plan.topic,
            topic_id=plan.topic_id,
            replication_factor=plan.replication_factor,
            leader_epochs=[plan.leader_epoch] * len(plan.partitions),
            configs=[RestorableTopicConfig(name, value) for name, value in sorted(plan.configs.items())],
        )
        request = RestoreTopicsRequest([topic], plan.min_next_producer_id, validate_only=validate_only)
        response = self._client.retrying(lambda: self._client.call(request, RestoreTopicsResponse))
        raise_for(response.error_code, f"topic {plan.topic!r}", response.error_message)
        for result in response.topics:
            raise_for(result.error_code, f"topic {result.name!r}", result.error_message)

    # ---- verification

    def _verify(self, plan: TopicPlan) -> None:
        """Wait until every log has the planned bounds. Raises CommandFailed."""
        deadline = time.monotonic() + self._timeout_s
        while problem := self._problem(plan):
            if time.monotonic() >= deadline:
                raise CommandFailed(f"{plan.topic} is restored, but {problem}.")
            time.sleep(CHECK_INTERVAL_S)
        self._on_progress(f"{plan.topic}: all partitions have leaders and their planned log bounds")

    def _problem(self, plan: TopicPlan) -> str | None:
        """Return a difference from the plan. A log may end later than planned: producers may be active."""
        self._cluster.refresh()
        if plan.topic_id not in self._cluster.topics.names:
            return "the brokers' metadata do not contain it yet"
        try:
            bounds = self._cluster.bounds(plan.topic)
        except KafkaError as error:
            if error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.BROKER_NOT_AVAILABLE):
                raise
            return error.message
        for each in plan.partitions:
            found = bounds.get(each.partition.partition)
            if found is None or found.start is None or found.end is None:
                return f"{each.partition} has no leader that responds"
            if found.start != each.log_start_offset or found.end < each.next_offset:
                planned = f"instead of {each.log_start_offset} to {each.next_offset}"
                return f"{each.partition} has offsets {found.start} to {found.end} {planned}"
        return None


def batches(events: Iterable[Event]) -> Iterator[Sequence[Event]]:
    """Yield batches of events; the events of a segment stay in one batch."""
    batch: list[Event] = []
    count = 0
    for _, its in groupby(events, key=_subject):
        if count == SEGMENTS_PER_BATCH:
            yield batch
            batch, count = [], 0
        batch += its
        count += 1
    if batch:
        yield batch


def _subject(event: Event) -> RemoteSegmentId | object:
    return event.partition if isinstance(event, PartitionDelete) else event.id


def plan_lines(plan: TopicPlan) -> Iterator[str]:
    """Yield the lines that describe a plan, with its warnings and refusals."""
    name = f"{plan.topic} ({uuid_to_text(plan.topic_id)})"
    if plan.is_done:
        yield f"{name}: no events are missing"
    elif plan.exists:
        yield f"{name}: exists; {plan.event_count} events are missing"
    else:
        yield (
            f"{name}: to be restored with {len(plan.partitions)} partitions, {_factor(plan)}, from leader epoch"
            f" {plan.leader_epoch}; {plan.event_count} events are missing"
        )
    for each in plan.partitions if not plan.exists else ():
        yield (
            f"  partition {each.partition.partition}: offsets {each.log_start_offset} to {each.next_offset},"
            f" {each.segment_count} segments, {each.size_bytes} bytes"
        )
    yield from (f"  warning: {warning}" for warning in plan.warnings)
    yield from (f"  refused: {refusal}" for refusal in plan.refusals)


def _factor(plan: TopicPlan) -> str:
    return "the default replication factor" if plan.replication_factor < 0 else f"{plan.replication_factor} replicas"


def plan_document(plan: TopicPlan) -> dict[str, object]:
    return {
        "topic": plan.topic,
        "topicId": uuid_to_text(plan.topic_id),
        "exists": plan.exists,
        "leaderEpoch": None if plan.exists else plan.leader_epoch,
        "replicationFactor": plan.replication_factor,
        "configs": dict(plan.configs),
        "missingEvents": plan.event_count,
        "partitions": [
            {
                "partition": each.partition.partition,
                "logStartOffset": each.log_start_offset,
                "nextOffset": each.next_offset,
                "segments": each.segment_count,
                "bytes": each.size_bytes,
                "missingEvents": len(each.events),
            }
            for each in plan.partitions
        ],
        "warnings": list(plan.warnings),
        "refusals": list(plan.refusals),
    }
