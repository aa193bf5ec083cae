"""The two replication quotas of a broker, by the metadata: rates by broker, throttled replicas by topic (KIP-73).

broker   leader.replication.throttled.rate        follower.replication.throttled.rate
topic    leader.replication.throttled.replicas    follower.replication.throttled.replicas
"""

from typing import Final

from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.replication.replication_quota import UNLIMITED, ReplicationQuota, listed_partitions

_SIDES: Final = ("leader", "follower")


class ReplicationThrottles:
    """`leader` limits the bytes sent to followers, `follower` the bytes fetched from leaders.

    Install as a metadata publisher before the users of the quotas. The windows are `replication.quota.window.num` and
    `replication.quota.window.size.seconds`.
    """

    def __init__(self, broker_id: int, *, window_count: int = 11, window_ms: int = 1000) -> None:
        self._broker_id = broker_id
        self.leader = ReplicationQuota(window_count=window_count, window_ms=window_ms)
        self.follower = ReplicationQuota(window_count=window_count, window_ms=window_ms)

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply changed configurations."""
        if delta.configs is None:
            return
        resources = list(delta.configs.changed_resources)
        for side, quota in zip(_SIDES, (self.leader, self.follower), strict=True):
            if any(resource.type == ResourceType.BROKER for resource in resources):
                quota.rate = self._rate(image, f"{side}.replication.throttled.rate")
            for resource in resources:
                if resource.type == ResourceType.TOPIC:
                    text = image.configs.topic(resource.name).get(f"{side}.replication.throttled.replicas", "")
                    quota.list_topic(resource.name, listed_partitions(text, self._broker_id))

    def _rate(self, image: MetadataImage, key: str) -> int:
        """Return the broker's setting, else the cluster's default; an invalid value limits nothing."""
        for settings in (image.configs.broker(self._broker_id), image.configs.cluster_default()):
            text = settings.get(key, "").strip()
            if text.isdecimal():
                return int(text)
        return UNLIMITED
