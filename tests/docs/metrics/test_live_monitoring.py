"""Dashboards and alert rules against three running nodes, and a real Prometheus where there is one."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

import pytest

from tests.docs.metrics.monitoring import RULES, alert_expressions, missing, panel_queries
from tests.docs.metrics.page import PAGE, labels_of, page
from tests.docs.metrics.page import exported as exported_families
from tests.support.processes.monitored_cluster import MonitoredCluster, monitored_cluster, wait_until
from tests.support.processes.prometheus_server import PrometheusServer

pytestmark = pytest.mark.integration

STEADY = ("kafka_log_log_", "kafka_cluster_partition_")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MonitoredCluster]:
    with monitored_cluster(tmp_path_factory.mktemp("monitored")) as running:
        running.work()
        yield running


@pytest.fixture(scope="module")
def prometheus(cluster: MonitoredCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    if (reason := missing("prometheus")) is not None:
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("prometheus") / "server"
    with PrometheusServer(directory, cluster.http_addresses, RULES.read_text()) as server:
        yield server


@pytest.fixture(scope="module")
def exported(cluster: MonitoredCluster) -> Mapping[str, set[str]]:
    """Return the labels of every exported name."""
    found: defaultdict[str, set[str]] = defaultdict(set, up=set())
    for family in cluster.families():
        found[family.name + ("_total" if family.type == "counter" else "")].update()
        for sample in family.samples:
            found[sample.name].update(sample.labels)
    return found


def test_names_and_labels_in_panels_and_rules_are_exported(exported: Mapping[str, set[str]]) -> None:
    expressions = [*panel_queries(), *alert_expressions()]
    used = [(each.owner, *metric) for each in expressions for metric in each.metrics()]
    assert len(used) > 150
    assert [(owner, name) for owner, name, _ in used if name not in exported] == []
    assert [(owner, name, labels) for owner, name, labels in used if not labels <= exported[name]] == []


def test_page_of_metrics_is_what_nodes_export(cluster: MonitoredCluster) -> None:
    families = exported_families(map(cluster.page, cluster.http_addresses))
    assert PAGE.read_text() == page(families), "run: python -m tests.docs.metrics.page"


def test_table_has_the_labels_of_each_sample(cluster: MonitoredCluster, exported: Mapping[str, set[str]]) -> None:
    table = labels_of(exported_families(map(cluster.page, cluster.http_addresses)))
    assert {name: labels for name, labels in table.items() if not exported[name] <= set(labels)} == {}


def test_opentelemetry_receives_the_series_and_values_of_each_node(cluster: MonitoredCluster) -> None:
    addresses = cluster.http_address_by_id
    assert addresses.keys() == {"1", "2", "3"}
    for node_id, address in addresses.items():
        check_export(cluster, node_id, address)


def check_export(cluster: MonitoredCluster, node_id: str, address: str) -> None:
    """Compare an export with the pages before and after it."""
    before, seen = cluster.series(address), cluster.receiver.count(node_id)
    wait_until(lambda: cluster.receiver.count(node_id) >= seen + 2, f"two exports of node {node_id}")
    received, after = cluster.receiver.series(node_id), cluster.series(address)
    assert (before.keys() & after.keys()) - received.keys() == set()
    assert received.keys() - (before.keys() | after.keys()) == set()
    both = before.keys() & received.keys() & after.keys()
    counters = [each for each in both if each.name.endswith(("_total", "_count", "_sum"))]
    assert len(counters) > 200
    assert [each for each in counters if not before[each] <= received[each] <= after[each]] == []
    steady = [each for each in both if each.name.startswith(STEADY) and before[each] == after[each]]
    assert len(steady) > 20
    assert [each for each in steady if received[each] != after[each]] == []


def test_each_panel_has_data(cluster: MonitoredCluster, prometheus: PrometheusServer) -> None:
    scraped_often = "min(count_over_time(up[1m])) >= 3"
    wait_until(lambda: bool(prometheus.query(scraped_often)), "three scrapes of every node")
    queries = panel_queries()
    assert len(queries) > 100
    with cluster.open_transaction():
        assert [each.owner for each in queries if not prometheus.query(each.at("30s"))] == []


def test_killed_node_makes_its_alerts_fire(cluster: MonitoredCluster, prometheus: PrometheusServer) -> None:
    wait_until(lambda: prometheus.firing() == set(), "no alert fires while all nodes run")
    address = cluster.http_address_by_id["3"]
    cluster.cluster.kill(2)
    wait_until(lambda: ("OttlaNodeDown", address) in prometheus.firing(), "OttlaNodeDown fires")
    expected = {"OttlaFencedBrokers", "OttlaUnderReplicatedPartitions"}
    wait_until(lambda: expected <= {name for name, _ in prometheus.firing()}, f"{expected} fire")
    assert {instance for name, instance in prometheus.firing() if name == "OttlaNodeDown"} == {address}
