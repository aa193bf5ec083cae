"""Controller mutation quotas: precedence, sharing, and the token bucket (KIP-599)."""

from collections.abc import Mapping, Sequence
from functools import partial

import pytest

from broker.metadata.controller.mutation_quota import MUTATION_RATE, MutationQuota, mutation_rate
from broker.metadata.image.quota_image import quota_entity, quota_record
from broker.metadata.image.quota_precedence import applied_quota
from broker.rates import sensor_table
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.broker.metadata.images import Cluster

Entity = Mapping[str, str | None]


def cluster_with(*rates: tuple[Entity, float]) -> Cluster:
    cluster = Cluster()
    cluster.start_brokers(1)
    cluster.append([quota_record(quota_entity(entity), MUTATION_RATE, rate) for entity, rate in rates])
    return cluster


def quota(cluster: Cluster, *, user: str = "u", client: str = "c", strict: bool = True) -> MutationQuota:
    return cluster.controller.mutation_quota(f"User:{user}", client, strict=strict, now_ms=cluster.now_ms)


class TestWhichApplies:
    LEVELS: Sequence[Entity] = (
        {"user": "u", "client-id": "c"},
        {"user": "u", "client-id": None},
        {"user": "u"},
        {"user": None, "client-id": "c"},
        {"user": None, "client-id": None},
        {"user": None},
        {"client-id": "c"},
        {"client-id": None},
    )
    SHARERS = (("u", "c"), ("u", "c"), ("u", None), ("u", "c"), ("u", "c"), ("u", None), (None, "c"), (None, "c"))

    @pytest.mark.parametrize("level", range(len(LEVELS)))
    def test_most_specific_quota_applies(self, level: int) -> None:
        rates = [(entity, 1.0 + number) for number, entity in enumerate(self.LEVELS)]
        quotas = cluster_with(*rates[level:]).image.client_quotas
        assert applied_quota(partial(mutation_rate, quotas), "u", "c") == (1.0 + level, self.SHARERS[level])

    def test_client_without_quota_is_unlimited(self) -> None:
        cluster = cluster_with(({"user": "v"}, 1.0), ({"client-id": "d"}, 1.0))
        assert applied_quota(partial(mutation_rate, cluster.image.client_quotas), "u", "c") is None
        unlimited = quota(cluster)
        unlimited.charge(10**9)
        assert unlimited.throttle_ms == 0


class TestBucket:
    def test_burst_passes_and_bucket_may_become_negative(self) -> None:
        cluster = cluster_with(({"user": "u"}, 2.0))  # a burst of 22
        quota(cluster).charge(20)
        last = quota(cluster)
        last.charge(10)
        assert last.throttle_ms == 0
        refused = quota(cluster)
        with pytest.raises(KafkaError) as caught:
            refused.charge(1)
        assert caught.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert refused.throttle_ms == 4_000, "8 too many, at 2 a second"

    def test_bucket_refills(self) -> None:
        cluster = cluster_with(({"user": "u"}, 2.0))
        quota(cluster).charge(30)
        cluster.now_ms += 3_999
        with pytest.raises(KafkaError):
            quota(cluster).charge(1)
        cluster.now_ms += 1
        quota(cluster).charge(1)

    def test_bucket_refills_up_to_a_burst(self) -> None:
        cluster = cluster_with(({"user": "u"}, 2.0))
        quota(cluster)
        cluster.now_ms += 1_000_000
        quota(cluster).charge(23)
        with pytest.raises(KafkaError):
            quota(cluster).charge(1)

    def test_older_clients_are_only_throttled(self) -> None:
        cluster = cluster_with(({"user": "u"}, 2.0))
        first = quota(cluster, strict=False)
        first.charge(30)
        second = quota(cluster, strict=False)
        second.charge(2)
        assert (first.throttle_ms, second.throttle_ms) == (4_000, 5_000)

    def test_clients_share_buckets_by_quota_entity(self) -> None:
        cluster = cluster_with(({"user": None}, 1.0))
        quota(cluster, client="a").charge(12)
        quota(cluster, user="other").charge(1)
        with pytest.raises(KafkaError):
            quota(cluster, client="b").charge(1)

    def test_bucket_count_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sensor_table, "SENSORS_MAX", 2)
        cluster = cluster_with(({"user": None}, 1.0))
        for user in "abc":
            quota(cluster, user=user).charge(100)
        quota(cluster, user="a").charge(1)
        with pytest.raises(KafkaError):
            quota(cluster, user="c").charge(1)

    def test_figures_show_rate_throttle_time_and_tokens(self) -> None:
        cluster = cluster_with(({"user": "u"}, 2.0))
        quota(cluster).charge(20)
        quota(cluster).charge(10)
        with pytest.raises(KafkaError):
            quota(cluster).charge(1)
        assert list(cluster.controller.mutation_figures(cluster.now_ms, 9)) == [(("u", None), 3.0, 4_000.0, -8.0)]
        cluster.now_ms += 5_000
        [figures] = cluster.controller.mutation_figures(cluster.now_ms, 9)
        assert figures.tokens == 2.0

    def test_new_active_controller_starts_with_full_buckets(self) -> None:
        cluster = cluster_with(({"user": "u"}, 1.0))
        quota(cluster).charge(100)
        cluster.activate()
        quota(cluster).charge(100)
        with pytest.raises(KafkaError):
            quota(cluster).charge(1)


class TestCommands:
    """Every command that creates or deletes partitions charges them, topic by topic."""

    @pytest.fixture
    def cluster(self) -> Cluster:
        return cluster_with(({"user": "u"}, 1.0))  # a burst of 11

    def create(self, cluster: Cluster, *topics: CreatableTopic, validate_only: bool = False) -> list[ErrorCode]:
        request = CreateTopicsRequest(list(topics), validate_only=validate_only)
        response = cluster.write(cluster.controller.create_topics(request, quota=quota(cluster)))
        return [ErrorCode(topic.error_code) for topic in response.topics]

    def test_create_topics_charges_partitions(self, cluster: Cluster) -> None:
        topics = [CreatableTopic("a", 11, 1), CreatableTopic("bad name", 5, 1), CreatableTopic("b", 1, 1)]
        assert self.create(cluster, *topics, CreatableTopic("c", 1, 1)) == [
            ErrorCode.NONE,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.NONE,
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ]
        assert cluster.image.topics.names() == ["a", "b"]

    def test_validate_only_charges_as_much(self, cluster: Cluster) -> None:
        assert self.create(cluster, CreatableTopic("a", 12, 1), validate_only=True) == [ErrorCode.NONE]
        assert self.create(cluster, CreatableTopic("a", 1, 1)) == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]

    def test_create_partitions_charges_added_partitions(self, cluster: Cluster) -> None:
        cluster.create_topic("t", [[1], [1]])
        for count, code in ((13, ErrorCode.NONE), (14, ErrorCode.NONE), (15, ErrorCode.THROTTLING_QUOTA_EXCEEDED)):
            request = CreatePartitionsRequest([CreatePartitionsTopic("t", count, None)])
            result = cluster.controller.create_partitions(request, quota=quota(cluster))
            assert ErrorCode(cluster.write(result).results[0].error_code) is code

    def test_delete_topics_charges_all_partitions(self, cluster: Cluster) -> None:
        ids = [cluster.create_topic(name, [[1]] * 12) for name in "ab"]
        answers = cluster.write(cluster.controller.delete_topics(ids, quota=quota(cluster)))
        assert [answers[each].error_code for each in ids] == [ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        assert cluster.image.topics.names() == ["b"]
