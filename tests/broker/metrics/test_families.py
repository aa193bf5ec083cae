"""Names and values of metrics, as a monitoring system scrapes them."""

import asyncio
from collections.abc import Callable, Sequence

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.metrics.exposition import SAMPLES_PER_SLICE, Exposition
from broker.metrics.family import Family, Sample, counter, gauge
from broker.metrics.loop_lag import PERIOD_S, PERIODS_PER_WINDOW, LoopLag
from broker.metrics.network import network_families
from broker.metrics.node import (
    LogFigures,
    broker_families,
    controller_families,
    group_families,
    log_families,
)
from broker.metrics.replicas import ReplicaFigures
from broker.metrics.requests import ROTATION_MS, RequestMetrics
from broker.metrics.topics import BrokerTopicMetrics
from broker.net.backlog import RequestBacklog
from broker.net.stats import ListenerStats
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.manual_loop import ManualLoop

Values = dict[str, float]


async def scrape(families: Sequence[Family]) -> Values:
    """Return every value of a page by `name{label="value",…}`; the page must parse."""
    page = (await Exposition(families).render()).decode()
    return {
        sample.name
        + "{"
        + ",".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
        + "}": sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def fixed(value: float) -> Callable[[], float]:
    return lambda: value


class TestTopics:
    async def test_traffic_is_counted_by_topic_and_in_total(self) -> None:
        metrics = BrokerTopicMetrics()
        metrics.topic("a").messages_in += 3
        metrics.topic("b").messages_in += 4
        metrics.elsewhere.failed_produce_requests += 1
        values = await scrape(metrics.families())
        assert values["kafka_server_brokertopicmetrics_messagesin_total{}"] == 7
        assert values['kafka_server_brokertopicmetrics_messagesin_total{topic="a"}'] == 3
        assert values["kafka_server_brokertopicmetrics_failedproducerequests_total{}"] == 1
        for name in ("bytesin", "bytesout", "totalproducerequests", "totalfetchrequests"):
            assert f'kafka_server_brokertopicmetrics_{name}_total{{topic="b"}}' in values

    async def test_series_end_with_their_topic_and_totals_never_fall(self) -> None:
        metrics = BrokerTopicMetrics()
        metrics.topic("a").bytes_in += 10
        metrics.remove("a")
        metrics.remove("never seen")
        values = await scrape(metrics.families())
        assert values["kafka_server_brokertopicmetrics_bytesin_total{}"] == 10
        assert not any('topic="a"' in name for name in values)

    def test_topic_keeps_its_meters(self) -> None:
        metrics = BrokerTopicMetrics()
        assert metrics.topic("a") is metrics.topic("a")


class TestRequests:
    async def test_requests_are_counted_by_version_and_timed_by_api(self) -> None:
        clock = ManualClock()
        metrics = RequestMetrics(clock.monotonic_ms)
        metrics.on_request(ApiKey.PRODUCE, 9, 2.0)
        metrics.on_request(ApiKey.PRODUCE, 10, 4.0)
        metrics.on_request(ApiKey.PRODUCE, 10, 4.0)
        metrics.on_error(ApiKey.FETCH, ErrorCode.OFFSET_OUT_OF_RANGE)
        values = await scrape(metrics.families())
        assert values['kafka_network_requestmetrics_requests_total{request="Produce",version="10"}'] == 2
        assert values['kafka_network_requestmetrics_totaltimems_count{request="Produce"}'] == 3
        assert values['kafka_network_requestmetrics_totaltimems_sum{request="Produce"}'] == 10.0
        assert values['kafka_network_requestmetrics_totaltimems{quantile="0.99",request="Produce"}'] == pytest.approx(
            4.0, rel=0.07
        )
        assert values['kafka_network_requestmetrics_errors_total{error="OFFSET_OUT_OF_RANGE",request="Fetch"}'] == 1

    async def test_quantiles_cover_recent_requests_and_counts_all(self) -> None:
        clock = ManualClock()
        metrics = RequestMetrics(clock.monotonic_ms)
        metrics.on_request(ApiKey.FETCH, 17, 500.0)
        for _ in range(2):
            clock.advance_ms(int(ROTATION_MS))
            await scrape(metrics.families())
        values = await scrape(metrics.families())
        assert values['kafka_network_requestmetrics_totaltimems{quantile="0.99",request="Fetch"}'] == 0
        assert values['kafka_network_requestmetrics_totaltimems_count{request="Fetch"}'] == 1


class TestNode:
    async def test_families_have_the_names_that_dashboards_use(self) -> None:
        families = [
            *broker_families(broker_state=fixed(3)),
            *ReplicaFigures(1, 2, 3, 4, 5, 6, 7, 8, 10).families(
                offline_replica_count=fixed(9), producer_id_count=fixed(11), late_transaction_count=fixed(1)
            ),
            *controller_families(
                active_controller_count=fixed(1),
                active_broker_count=fixed(2),
                fenced_broker_count=fixed(3),
                global_topic_count=fixed(4),
                global_partition_count=fixed(5),
                offline_partitions_count=fixed(6),
                preferred_replica_imbalance_count=fixed(7),
                last_committed_record_offset=fixed(8),
            ),
            *group_families(
                groups_by_protocol=lambda: {"classic": 1, "consumer": 2},
                consumer_groups_by_state=lambda: {"stable": 2},
                consumer_group_rebalance_count=fixed(3),
                share_groups_by_state=lambda: {"empty": 1},
                share_group_rebalance_count=fixed(5),
                streams_groups_by_state=lambda: {"not_ready": 1},
                streams_group_rebalance_count=fixed(4),
                offset_count=fixed(2),
            ),
        ]
        values = await scrape(families)
        ours = {name.removesuffix("{}"): value for name, value in values.items() if name.startswith("kafka_")}
        assert ours == {
            "kafka_server_kafkaserver_brokerstate": 3,
            "kafka_server_replicamanager_partitioncount": 1,
            "kafka_server_replicamanager_leadercount": 2,
            "kafka_server_replicamanager_underreplicatedpartitions": 3,
            "kafka_server_replicamanager_underminisrpartitioncount": 4,
            "kafka_server_replicamanager_atminisrpartitioncount": 5,
            "kafka_server_replicamanager_reassigningpartitions": 10,
            "kafka_server_replicamanager_offlinereplicacount": 9,
            "kafka_server_replicamanager_produceridcount": 11,
            "kafka_server_replicamanager_partitionswithlatetransactionscount": 1,
            "kafka_server_replicamanager_isrshrinks_total": 6,
            "kafka_server_replicamanager_isrexpands_total": 7,
            "kafka_server_replicamanager_failedisrupdates_total": 8,
            "kafka_controller_kafkacontroller_activecontrollercount": 1,
            "kafka_controller_kafkacontroller_activebrokercount": 2,
            "kafka_controller_kafkacontroller_fencedbrokercount": 3,
            "kafka_controller_kafkacontroller_globaltopiccount": 4,
            "kafka_controller_kafkacontroller_globalpartitioncount": 5,
            "kafka_controller_kafkacontroller_offlinepartitionscount": 6,
            "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": 7,
            "kafka_controller_kafkacontroller_lastcommittedrecordoffset": 8,
            "kafka_coordinator_group_groupmetadatamanager_numgroups": 1,
            "kafka_coordinator_group_groupmetadatamanager_numoffsets": 2,
            'kafka_server_group_coordinator_metrics_group_count{protocol="classic"}': 1,
            'kafka_server_group_coordinator_metrics_group_count{protocol="consumer"}': 2,
            'kafka_server_group_coordinator_metrics_consumer_group_count{state="stable"}': 2,
            "kafka_server_group_coordinator_metrics_consumer_group_rebalance_count": 3,
            'kafka_server_group_coordinator_metrics_share_group_count{state="empty"}': 1,
            "kafka_server_group_coordinator_metrics_share_group_rebalance_count": 5,
            'kafka_server_group_coordinator_metrics_streams_group_count{state="not_ready"}': 1,
            "kafka_server_group_coordinator_metrics_streams_group_rebalance_count": 4,
        }

    async def test_log_metrics_are_labelled_by_partition(self) -> None:
        logs = [LogFigures("a", 0, 100, 1, 5, 9), LogFigures("a", 1, 200, 2, 0, 7, retention_bytes=150)]
        values = await scrape(
            log_families(logs=lambda: logs, offline_log_directory_count=fixed(1), damaged_log_count=fixed(2))
        )
        assert values['kafka_log_log_size{partition="1",topic="a"}'] == 200
        assert values['kafka_log_log_retentionsizeinpercent{partition="0",topic="a"}'] == 0
        assert values['kafka_log_log_retentionsizeinpercent{partition="1",topic="a"}'] == 133
        assert values['kafka_log_log_numlogsegments{partition="1",topic="a"}'] == 2
        assert values['kafka_log_log_logstartoffset{partition="0",topic="a"}'] == 5
        assert values['kafka_log_log_logendoffset{partition="0",topic="a"}'] == 9
        assert values["kafka_log_logmanager_offlinelogdirectorycount{}"] == 1
        assert values["ottla_log_damaged_logs{}"] == 2

    async def test_network_metrics_are_labelled_by_listener(self) -> None:
        backlog = RequestBacklog(10, 1000)
        backlog.adjust(2, 300)
        stats = {"PLAINTEXT": ListenerStats(connections=3, expired_idle=1), "B": ListenerStats(expired_idle=1)}
        values = await scrape(network_families(stats, [backlog, RequestBacklog(10, 1000)]))
        where = '{listener="PLAINTEXT",networkProcessor="0"}'
        assert values["kafka_server_socket_server_metrics_connection_count" + where] == 3
        assert values["kafka_network_socketserver_expiredconnectionskilledcount{}"] == 2
        assert values["kafka_network_socketserver_memorypoolused{}"] == 300
        assert values["kafka_network_socketserver_memorypoolavailable{}"] == 1700
        assert values["kafka_network_requestchannel_requestqueuesize{}"] == 2


class TestExposition:
    async def test_long_family_is_rendered_in_slices_with_one_head(self) -> None:
        count = 2 * SAMPLES_PER_SLICE + 1
        family = Family("a", "help", "gauge", lambda: [Sample(n, {"n": str(n)}) for n in range(count)])
        page = (await Exposition([family]).render()).decode()
        assert page.count("# TYPE a gauge\n") == 1
        assert page.count("# HELP a help\n") == 1
        assert [line for line in page.splitlines() if line.startswith("a{")] == [
            f'a{{n="{n}"}} {float(n)}' for n in range(count)
        ]

    async def test_topics_may_change_during_rendering(self) -> None:
        count = 3 * SAMPLES_PER_SLICE
        metrics = BrokerTopicMetrics()
        for number in range(count):
            metrics.topic(f"old-{number}")
        rendering = asyncio.ensure_future(scrape(metrics.families()[:1]))
        number = 0
        await asyncio.sleep(0)
        while not rendering.done():
            metrics.topic(f"new-{number}")
            metrics.remove(f"old-{number}")
            number += 1
            await asyncio.sleep(0)
        assert number > 3
        assert sum('topic="old' in name for name in rendering.result()) == count

    async def test_exposition_includes_process_metrics(self) -> None:
        values = await scrape([])
        assert values["process_resident_memory_bytes{}"] > 0
        assert values["process_open_fds{}"] > 0
        assert 'python_gc_collections_total{generation="2"}' in values

    async def test_label_values_are_escaped(self) -> None:
        values = await scrape([Family("a_total", "help", "counter", lambda: [Sample(1, {"topic": 'x"\\\n'})])])
        assert values['a_total{topic="x"\\\n"}'] == 1

    def test_two_families_of_one_name_are_refused(self) -> None:
        with pytest.raises(AssertionError):
            Exposition([gauge("a", "", fixed(1)), counter("a", "", fixed(1))])


class TestLoopLag:
    def test_loop_without_delay_has_no_lag(self) -> None:
        loop = ManualLoop()
        lag = LoopLag(loop)
        loop.advance(10 * PERIOD_S)
        assert lag.seconds == pytest.approx(0)

    async def test_stall_shows_at_once_and_for_a_window_afterwards(self) -> None:
        loop = StallingLoop()
        lag = LoopLag(loop)
        loop.now += PERIOD_S + 2.0
        assert lag.seconds == pytest.approx(2.0)
        loop.ring()
        assert lag.seconds == pytest.approx(2.0)
        for _ in range(PERIODS_PER_WINDOW):
            loop.now += PERIOD_S
            loop.ring()
        assert lag.seconds == pytest.approx(2.0)
        for _ in range(PERIODS_PER_WINDOW):
            loop.now += PERIOD_S
            loop.ring()
        assert lag.seconds == pytest.approx(0.0)
        assert "ottla_event_loop_lag_seconds{}" in await scrape([lag.family()])

    def test_stopped_lag_measurement_sets_no_timer(self) -> None:
        loop = ManualLoop()
        LoopLag(loop).stop()
        assert loop.live_timers == 0


class StallingLoop:
    """An event loop whose clock may pass a timer before the timer fires, as when a callback blocks."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: Callable[[], None] | None = None

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        self._due = callback
        return asyncio.TimerHandle(when, callback, (), asyncio.get_running_loop())

    def ring(self) -> None:
        """Run the timer that is due."""
        assert self._due is not None
        self._due()
