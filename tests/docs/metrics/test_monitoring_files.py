"""Dashboards, alert rules, and the configuration of Prometheus, Alertmanager and Grafana, as files."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.metrics.monitoring import FOLDER, alert_rules, dashboards, missing
from tests.support.kafka.apache_kafka import REPOSITORY
from tests.support.processes import containers
from tests.support.processes.containers import compose_document

SEVERITIES = {"critical", "warning", "info"}
SERVICES = ("prometheus", "alertmanager", "grafana")


@pytest.fixture(scope="module")
def services() -> Mapping[str, Any]:
    if (reason := containers.compose_reason()) is not None:
        pytest.skip(reason)
    found = compose_document("--profile", "monitoring", file=REPOSITORY / "docker-compose.yml")["services"]
    assert isinstance(found, dict)
    return found


def checked(*command: str) -> None:
    """Run a checker in the folder of the configuration. Skip the test without it."""
    if (reason := missing(command[0])) is not None:
        pytest.skip(reason)
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class TestPrometheus:
    def test_configuration_passes_promtool(self) -> None:
        checked("promtool", "check", "config", "prometheus/prometheus.yml")

    def test_rules_pass_promtool(self) -> None:
        checked("promtool", "check", "rules", "prometheus/alerts.yml")

    def test_unit_tests_of_rules_pass(self) -> None:
        checked("promtool", "test", "rules", "prometheus/alerts_test.yml")

    def test_alertmanager_configuration_passes_amtool(self) -> None:
        checked("amtool", "check-config", "alertmanager/alertmanager.yml")

    def test_each_alert_has_a_unit_test(self) -> None:
        tested = {each["name"] for each in yaml.safe_load((FOLDER / "prometheus/alerts_test.yml").read_text())["tests"]}
        assert {rule["alert"] for rule in alert_rules()} - tested == set()

    def test_each_alert_has_severity_summary_and_runbook(self) -> None:
        rules = alert_rules()
        assert len(rules) > 25
        for rule in rules:
            assert (rule["alert"], rule["labels"]["severity"] in SEVERITIES) == (rule["alert"], True)
            assert rule["annotations"]["summary"].endswith(".")
            assert rule["annotations"]["description"].endswith(".")

    @pytest.mark.parametrize("page", ["docs/monitoring/README.md", "docs/troubleshooting.md"])
    def test_runbooks_are_sections_that_exist(self, page: str) -> None:
        places = [rule["annotations"]["runbook_url"].partition("#") for rule in alert_rules()]
        assert {file for file, _, _ in places} == {"docs/monitoring/README.md", "docs/troubleshooting.md"}
        if not (path := REPOSITORY / page).exists():
            pytest.skip(f"{page} does not exist yet")
        lines = path.read_text().splitlines()
        sections = {line.lstrip("# ").lower().replace(" ", "-") for line in lines if line.startswith("#")}
        assert {section for file, _, section in places if file == page} - sections == set()

    def test_inhibited_alerts_exist(self) -> None:
        names = {rule["alert"] for rule in alert_rules()}
        (rule,) = yaml.safe_load((FOLDER / "alertmanager/alertmanager.yml").read_text())["inhibit_rules"]
        matchers = " ".join((*rule["source_matchers"], *rule["target_matchers"]))
        found = {word for word in matchers.replace('"', " ").replace("|", " ").split() if word.startswith("Ottla")}
        assert found
        assert found <= names


class TestDashboards:
    @pytest.mark.parametrize("path", dashboards(), ids=lambda path: str(path.stem))
    def test_dashboard_has_no_field_that_grafana_11_does_not_know(self, path: Path) -> None:
        """Decode with the classes that Grafana generates from its schema, and compare what they encode."""
        pytest.importorskip("grafana_foundation_sdk", reason="the SDK is not installed: pip install '.[test]'")
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.cog.plugins import register_default_plugins
        from grafana_foundation_sdk.models.dashboard import Dashboard

        register_default_plugins()
        read = dashboards()[path]
        known = json.loads(JSONEncoder().encode(Dashboard.from_json(read)))
        assert list(_differences(read, known)) == []

    def test_data_source_is_a_variable(self) -> None:
        assert len(dashboards()) == 6
        for path, dashboard in dashboards().items():
            variables = {each["name"]: each for each in dashboard["templating"]["list"]}
            assert variables["datasource"]["type"] == "datasource"
            panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
            used = {each["datasource"]["uid"] for panel in panels for each in (panel, *panel["targets"])}
            assert (path.stem, used) == (path.stem, {"${datasource}"})

    def test_identifiers_are_unique(self) -> None:
        found = dashboards()
        assert len({each["uid"] for each in found.values()}) == len(found)
        for path, dashboard in found.items():
            assert dashboard["uid"] == f"ottla-{path.stem}"
            ids = [panel["id"] for panel in dashboard["panels"]]
            assert len(ids) == len(set(ids))

    def test_panels_do_not_overlap(self) -> None:
        for path, dashboard in dashboards().items():
            cells = [cell for panel in dashboard["panels"] for cell in _cells(panel["gridPos"])]
            assert (path.stem, len(cells)) == (path.stem, len(set(cells)))
            assert max(column for column, _ in cells) < 24


class TestCompose:
    @pytest.mark.integration
    def test_profile_adds_three_services_with_few_privileges(self, services: Mapping[str, Any]) -> None:
        for name in SERVICES:
            service = services[name]
            assert service["profiles"] == ["monitoring"]
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
            assert {port["host_ip"] for port in service["ports"]} == {"127.0.0.1"}
            assert service["healthcheck"]["test"][0] == "CMD"
            assert ":" in service["image"], "images are pinned"

    @pytest.mark.integration
    def test_mounted_files_exist(self, services: Mapping[str, Any]) -> None:
        mounts = [each for name in SERVICES for each in services[name]["volumes"] if each["type"] == "bind"]
        assert len(mounts) == 5
        for mount in mounts:
            assert any(Path(mount["source"]).iterdir()), mount
            assert mount["read_only"] is True

    @pytest.mark.integration
    def test_prometheus_scrapes_the_nodes_and_knows_the_alertmanager(self, services: Mapping[str, Any]) -> None:
        config = yaml.safe_load((FOLDER / "prometheus/prometheus.yml").read_text())
        (ottla,) = [job for job in config["scrape_configs"] if job["job_name"] == "ottla"]
        (targets,) = ottla["static_configs"]
        for target in targets["targets"]:
            name, _, port = target.partition(":")
            assert services[name]["environment"]["KAFKA_OTTLA_HTTP_LISTENER"] == f"0.0.0.0:{port}"
        (manager,) = config["alerting"]["alertmanagers"]
        assert manager["static_configs"][0]["targets"] == ["alertmanager:9093"]

    @pytest.mark.integration
    def test_grafana_finds_prometheus_and_dashboards_by_provisioning(self, services: Mapping[str, Any]) -> None:
        (source,) = yaml.safe_load((FOLDER / "grafana/datasources/prometheus.yml").read_text())["datasources"]
        assert source["url"] == "http://prometheus:9090"
        (provider,) = yaml.safe_load((FOLDER / "grafana/providers/ottla.yml").read_text())["providers"]
        grafana = services["grafana"]
        assert provider["options"]["path"] in {each["target"] for each in grafana["volumes"]}
        home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
        assert (FOLDER / "dashboards" / Path(home).name).exists()


def _cells(position: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    for column in range(position["x"], position["x"] + position["w"]):
        for line in range(position["y"], position["y"] + position["h"]):
            yield column, line


def _differences(read: Any, known: Any, place: str = "") -> Iterator[str]:
    if isinstance(read, dict) and isinstance(known, dict):
        for key, value in read.items():
            if key in known:
                yield from _differences(value, known[key], f"{place}/{key}")
            else:
                yield f"{place}/{key} is unknown"
    elif isinstance(read, list) and isinstance(known, list) and len(read) == len(known):
        for index, pair in enumerate(zip(read, known, strict=True)):
            yield from _differences(*pair, f"{place}[{index}]")
    elif read != known:
        yield f"{place}: {read!r} became {known!r}"
