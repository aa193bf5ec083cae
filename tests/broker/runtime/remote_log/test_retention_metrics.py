"""Size of tiered logs in percent of their retention limits (KIP-1257), as exported by led partitions."""

from collections.abc import Mapping

from tests.broker.runtime.remote_log.test_manager import a_while, staged
from tests.support.harnesses.remote_log_harness import TOPIC, Broker, Bucket


def percents(broker: Broker) -> Mapping[str, list[float]]:
    prefix = "kafka_log_remote_remotelogmanager_"
    found = {}
    for family in broker.metrics.families():
        if family.name.startswith(prefix):
            samples = list(family.read())
            assert all(sample.labels == {"topic": TOPIC, "partition": "0"} for sample in samples)
            found[family.name.removeprefix(prefix)] = [sample.value for sample in samples]
    return found


@staged
async def test_offsets_that_are_local_and_remote_count_once_for_the_limit() -> None:
    bucket = Bucket()
    broker = Broker(bucket).start()
    replica = broker.lead(0)
    log = broker.fill(4)
    size = log.size_bytes
    broker.configure(retention_bytes=4 * size, local_retention_bytes=2 * size)
    await a_while(200)
    assert len(bucket.ranges()) == 4
    assert percents(broker) == {"retentionsizeinpercent": [25], "localretentionsizeinpercent": [50]}
    broker.fill(4, commit=False)
    assert percents(broker) == {"retentionsizeinpercent": [50], "localretentionsizeinpercent": [100]}
    broker.configure(local_retention_bytes=1)
    broker.retain()
    local = 100 * replica.log.size_bytes
    assert percents(broker) == {"retentionsizeinpercent": [50], "localretentionsizeinpercent": [local]}
    await broker.stop()


@staged
async def test_percentages_are_0_without_a_limit_and_end_with_leadership() -> None:
    broker = Broker(Bucket()).start()
    broker.lead(0)
    broker.fill(2)
    await a_while(60)
    assert percents(broker) == {"retentionsizeinpercent": [0], "localretentionsizeinpercent": [0]}
    broker.follow(1)
    assert percents(broker) == {"retentionsizeinpercent": [], "localretentionsizeinpercent": []}
    await broker.stop()
