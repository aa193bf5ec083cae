"""`ottla remote recover`: carries out the plans of `storage/tiered/bucket/recovery_plan.py`, stage by stage.

1. The controller is asked whether it would make the topic, so that nothing is begun that cannot be finished.
2. Events that metadata lack are published, so that whoever leads a partition finds its segments.
3. Where offsets are given up, the log start offset is written beside the segments.
4. The topic is made again under its id. Leaders begin above all epochs that were seen, after the last remote offset.
5. It is looked up that they did.

Each stage is told when it is done. What was done is found done by the next attempt.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from broker.cli.shared.failure import CommandFailed
from broker.cli.tiering.bucket import RemoteBucket
from broker.cli.tiering.cluster import Cluster
from broker.client import Client, raise_for
from protocol.errors import ErrorCode, KafkaError
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
"""Two events each of some 200 bytes: a fifth of what a batch may weigh."""

CHECK_INTERVAL_S = 0.2

ProgressCallback = Callable[[str], None]


class TopicRecovery:
    """Carries out plans. `say` is told of every stage, and `patience_s` bounds the last.

    Raises what the client and the store raise, and CommandFailed.
    """

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        journal: MetadataJournal,
        bucket: RemoteBucket,
        options: RecoveryOptions,
        *,
        say: ProgressCallback,
        patience_s: float,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._journal = journal
        self._bucket = bucket
        self._options = options
        self._say = say
        self._patience_s = patience_s

    def carry_out(self, plan: TopicPlan) -> None:
        """A plan without refusals."""
        assert not plan.refusals, "a plan that is refused is not carried out"
        if plan.exists:
            self._publish(plan)
            return
        self._restore(plan, validate_only=True)
        self._publish(plan)
        self._raise_log_starts(plan)
        self._restore(plan)
        self._say(
            f"{plan.topic}: made again as {uuid_to_text(plan.topic_id)} with {len(plan.partitions)} partitions from"
            f" leader epoch {plan.leader_epoch} on"
        )
        self._look_up(plan)

    def _publish(self, plan: TopicPlan) -> None:
        for partition in plan.partitions:
            for batch in batches(partition.events):
                self._journal.publish(partition.partition, batch)
            if partition.events:
                self._say(f"{partition.partition}: published {len(partition.events)} events of its segments")

    def _raise_log_starts(self, plan: TopicPlan) -> None:
        for partition in plan.partitions:
            if partition.raised_log_start is not None:
                self._write_log_start(plan, partition, partition.raised_log_start)
                self._say(f"{partition.partition}: gave up offsets below {partition.raised_log_start}")

    def _write_log_start(self, plan: TopicPlan, partition: PartitionPlan, offset: int) -> None:
        said = LogStart(
            log_start_offset=offset,
            leader_epoch=plan.object_epoch,
            cluster_id=self._options.cluster_id,
            broker_id=self._options.broker_id,
            timestamp_ms=self._options.now_ms,
        )
        target = log_start_object(self._bucket.store, self._bucket.keys.partition(partition.partition))
        target.write(plan.object_epoch, encode_log_start(said))

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

    # ---- whether it worked

    def _look_up(self, plan: TopicPlan) -> None:
        """Waits until every log begins and ends where it should. Raises CommandFailed."""
        deadline = time.monotonic() + self._patience_s
        while amiss := self._amiss(plan):
            if time.monotonic() >= deadline:
                raise CommandFailed(f"{plan.topic} is there again, but {amiss}.")
            time.sleep(CHECK_INTERVAL_S)
        self._say(f"{plan.topic}: all partitions are led, from their log start to their remote end")

    def _amiss(self, plan: TopicPlan) -> str | None:
        """What is not yet as it should be. Others may produce already, so that a log may go on further."""
        self._cluster.refresh()
        if plan.topic_id not in self._cluster.topics.names:
            return "brokers do not know it yet"
        try:
            bounds = self._cluster.bounds(plan.topic)
        except KafkaError as error:
            if error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.BROKER_NOT_AVAILABLE):
                raise
            return error.message
        for each in plan.partitions:
            found = bounds.get(each.partition.partition)
            if found is None or found.start is None or found.end is None:
                return f"{each.partition} has no leader that answers"
            if found.start != each.log_start_offset or found.end < each.next_offset:
                wanted = f"instead of {each.log_start_offset} to {each.next_offset}"
                return f"{each.partition} goes from {found.start} to {found.end} {wanted}"
        return None


def batches(events: Iterable[Event]) -> Iterator[Sequence[Event]]:
    """Events as they may be written at once: those of one segment are never parted."""
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
    """What a plan would do, and what speaks against it."""
    name = f"{plan.topic} ({uuid_to_text(plan.topic_id)})"
    if plan.is_done:
        yield f"{name}: nothing is missing"
    elif plan.exists:
        yield f"{name}: exists; {plan.event_count} events are missing"
    else:
        yield (
            f"{name}: to be made again with {len(plan.partitions)} partitions, {_factor(plan)}, from leader epoch"
            f" {plan.leader_epoch} on; {plan.event_count} events are missing"
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
