"""Traffic by topic."""

from broker.metrics.topics import BrokerTopicMetrics


def test_busiest_topics_come_first_and_are_limited() -> None:
    metrics = BrokerTopicMetrics()
    for name, size in (("quiet", 1), ("loud", 30), ("medium", 20)):
        metrics.topic(name).bytes_in += size
    metrics.topic("medium").bytes_out += 20
    assert [name for name, _ in metrics.busiest(2)] == ["medium", "loud"]
    assert list(metrics.busiest(0)) == []
