"""Dashboards and alert rules against three running nodes, and a real Prometheus where there is one."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

import pytest

from tests.docs.metrics.monitoring import RULES, alert_expressions, missing, panel_queries
from tests.support.processes.monitored_cluster import MonitoredCluster, monitored_cluster, wait_until
from tests.support.processes.prometheus_server import PrometheusServer

pytestmark = pytest.mark.integration


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


def test_each_panel_has_data(cluster: MonitoredCluster, prometheus: PrometheusServer) -> None:
    scraped_often = "min(count_over_time(up[1m])) >= 3"
    wait_until(lambda: bool(prometheus.query(scraped_often)), "three scrapes of every node")
    queries = panel_queries()
    assert len(queries) > 100
    with cluster.open_transaction():
        assert [each.owner for each in queries if not prometheus.query(each.at("30s"))] == []


def test_killed_node_makes_its_alerts_fire(cluster: MonitoredCluster, prometheus: PrometheusServer) -> None:
    wait_until(lambda: prometheus.firing() == set(), "no alert fires while all nodes run")
    lines = [line for line in cluster.cluster.lines if line.startswith("node 3 ")]
    (address,) = [each for each in cluster.http_addresses if any(each in line for line in lines)]
    cluster.cluster.kill(2)
    wait_until(lambda: ("OttlaNodeDown", address) in prometheus.firing(), "OttlaNodeDown fires")
    expected = {"OttlaFencedBrokers", "OttlaUnderReplicatedPartitions"}
    wait_until(lambda: expected <= {name for name, _ in prometheus.firing()}, f"{expected} fire")
    assert {instance for name, instance in prometheus.firing() if name == "OttlaNodeDown"} == {address}
