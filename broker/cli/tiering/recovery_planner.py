"""Recovery plans for the topics of a bucket, based on the current cluster and remote metadata."""

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
    """Planner of recoveries. `metadata` are read after each topic is listed in the bucket."""

    def __init__(
        self, bucket: RemoteBucket, cluster: Cluster, metadata: MetadataJournal, options: RecoveryOptions
    ) -> None:
        self._bucket = bucket
        self._cluster = cluster
        self._metadata = metadata
        self._options = options

    def plans(self, topic: str | None, topic_id: Uuid | None, *, restore: bool) -> Iterator[TopicPlan]:
        """Yield plans for all topics or one; `restore` includes topics that do not exist.

        Without `topic_id`, the plan of a missing topic that the bucket has under several ids is refused.
        """
        bucket = self._bucket
        ids = incarnations(bucket.store, bucket.keys, topic)
        for inventory in topics_in(bucket.store, bucket.keys, bucket.reader, topic):
            exists = inventory.topic_id in self._cluster.topics.names
            topic_ids = ids.get(inventory.topic, set())
            if topic_id is None:
                wanted = exists or (restore and not self._is_former(inventory, topic_ids))
            else:
                wanted = inventory.topic_id == topic_id and (exists or restore)
            if not wanted:
                continue
            plan = plan_topic(inventory, self._known(inventory), self._cluster.topics, self._options)
            if not exists and topic_id is None and len(topic_ids) > 1 and not plan.refusals:
                plan = replace(plan, refusals=(_ambiguous(inventory.topic, topic_ids),))
            yield plan

    def _is_former(self, inventory: TopicInventory, topic_ids: set[Uuid]) -> bool:
        """Return whether the topic exists under another id that the bucket has too."""
        return self._cluster.topics.ids.get(inventory.topic) in topic_ids

    def _known(self, inventory: TopicInventory) -> dict[int, KnownPartition]:
        partitions = (
            TopicIdPartition(inventory.topic_id, inventory.topic, number) for number in range(inventory.partition_count)
        )
        return {each.partition: self._metadata.catch_up(each) for each in partitions}


def _ambiguous(topic: str, ids: set[Uuid]) -> str:
    shown = ", ".join(sorted(map(uuid_to_text, ids)))
    return f"the bucket has several topics named {topic}; choose one with --topic-id: {shown}."
