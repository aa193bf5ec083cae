"""The two replication quotas follow the metadata's configurations."""

from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE, MetadataImage, Provenance
from broker.replication.replication_quota import UNLIMITED
from broker.runtime.replication.throttles import ReplicationThrottles
from protocol.messages.metadata_records import ConfigRecord


class Cluster:
    """Broker 9's throttles and the metadata."""

    def __init__(self) -> None:
        self.throttles = ReplicationThrottles(9)
        self.image: MetadataImage = EMPTY_IMAGE

    def set(self, kind: ResourceType, name: str, key: str, value: str | None) -> None:
        delta = MetadataDelta(self.image)
        delta.replay(ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value))
        self.image = delta.apply(Provenance())
        self.throttles.on_metadata(delta, self.image)


def test_broker_rate_overrides_the_cluster_default() -> None:
    cluster = Cluster()
    cluster.set(ResourceType.BROKER, "", "follower.replication.throttled.rate", "100")
    assert (cluster.throttles.follower.rate, cluster.throttles.leader.rate) == (100, UNLIMITED)
    cluster.set(ResourceType.BROKER, "9", "follower.replication.throttled.rate", "7")
    assert cluster.throttles.follower.rate == 7
    cluster.set(ResourceType.BROKER, "9", "follower.replication.throttled.rate", None)
    assert cluster.throttles.follower.rate == 100


def test_leader_and_follower_have_their_own_lists() -> None:
    cluster = Cluster()
    cluster.set(ResourceType.TOPIC, "t", "leader.replication.throttled.replicas", "0:9,1:8")
    cluster.set(ResourceType.TOPIC, "t", "follower.replication.throttled.replicas", "*")
    leader, follower = cluster.throttles.leader, cluster.throttles.follower
    assert [leader.is_listed("t", index) for index in (0, 1)] == [True, False]
    assert [follower.is_listed("t", index) for index in (0, 1)] == [True, True]
    cluster.set(ResourceType.TOPIC, "t", "follower.replication.throttled.replicas", None)
    assert not follower.is_listed("t", 0)
    assert leader.is_listed("t", 0)


def test_unrelated_changes_are_ignored() -> None:
    cluster = Cluster()
    cluster.throttles.on_metadata(MetadataDelta(EMPTY_IMAGE), EMPTY_IMAGE)
    cluster.set(ResourceType.GROUP, "g", "anything", "1")
    assert cluster.throttles.leader.rate == UNLIMITED
