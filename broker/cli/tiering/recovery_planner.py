"""Plans for what a bucket has, topic by topic, made on what cluster and metadata say at that moment."""

from collections.abc import Iterator
from dataclasses import replace

from broker.cli.tiering.bucket import RemoteBucket
from broker.cli.tiering.cluster import Cluster
from protocol.primitives import Uuid, uuid_to_text
from storage.tiered.bucket.recovery_plan import RecoveryOptions, TopicInventory, TopicPlan, plan_topic
from storage.tiered.bucket.topic_inventory import incarnations, topics_in
from storage.tiered.catalog.metadata_journal import KnownPartition, MetadataJournal
from storage.tiered.segment_metadata import TopicIdPartition


class RecoveryPlanner:
    """`metadata` are read after each topic was listed."""

    def __init__(
        self, bucket: RemoteBucket, cluster: Cluster, metadata: MetadataJournal, options: RecoveryOptions
    ) -> None:
        self._bucket = bucket
        self._cluster = cluster
        self._metadata = metadata
        self._options = options

    def plans(self, topic: str | None, topic_id: Uuid | None, *, may_make: bool) -> Iterator[TopicPlan]:
        """Of all topics, or of one; `may_make`: also of those that do not exist.

        Where there are several incarnations of a topic that does not exist, it must be said which one is meant.
        """
        bucket = self._bucket
        ids = incarnations(bucket.store, bucket.keys, topic)
        for evidence in topics_in(bucket.store, bucket.keys, bucket.reader, topic):
            exists = evidence.topic_id in self._cluster.topics.names
            several = ids.get(evidence.topic, set())
            if topic_id is None:
                wanted = exists or (may_make and not self._is_former(evidence, several))
            else:
                wanted = evidence.topic_id == topic_id and (exists or may_make)
            if not wanted:
                continue
            plan = plan_topic(evidence, self._known(evidence), self._cluster.topics, self._options)
            if not exists and topic_id is None and len(several) > 1 and not plan.refusals:
                plan = replace(plan, refusals=(_ambiguous(evidence.topic, several),))
            yield plan

    def _is_former(self, evidence: TopicInventory, several: set[Uuid]) -> bool:
        """Whether the topic exists under another id that the bucket knows as well."""
        return self._cluster.topics.ids.get(evidence.topic) in several

    def _known(self, evidence: TopicInventory) -> dict[int, KnownPartition]:
        partitions = (
            TopicIdPartition(evidence.topic_id, evidence.topic, number) for number in range(evidence.partition_count)
        )
        return {each.partition: self._metadata.catch_up(each) for each in partitions}


def _ambiguous(topic: str, ids: set[Uuid]) -> str:
    shown = ", ".join(sorted(map(uuid_to_text, ids)))
    return f"the bucket has several topics of the name {topic}: say which with --topic-id, {shown}."
