"""docker-compose.yml, checked by compose and our configuration loader, and built and run where OTTLA_COMPOSE=1."""

import base64
import http.client
import json
import ssl
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.cli.node.container import prepare
from broker.config.exposure import exposure_warnings
from broker.config.load import load_config, read_properties
from broker.tls.principal_rules import parse_principal_rules
from storage.tiered.loading.store_uri import parse_store_uri
from tests.support.clients.checkable_records import Recipe, read_back, write
from tests.support.clients.partition_states import until
from tests.support.clients.replicated_load import admin_of, create_topic
from tests.support.kafka.apache_kafka import REPOSITORY
from tests.support.processes import containers
from tests.support.processes.containers import Engine, compose_document

pytestmark = pytest.mark.integration

FILE = REPOSITORY / "docker-compose.yml"
NODES = ("node-1", "node-2", "node-3")
SECURE_NODES = ("secure-node-1", "secure-node-2", "secure-node-3")
SPLIT_CONTROLLERS = ("split-controller-1", "split-controller-2", "split-controller-3")
SPLIT_BROKERS = ("split-broker-1", "split-broker-2", "split-broker-3")
ONE_SHOTS = ("bucket", "secure-secrets", "secure-user")
"""Services that do one thing and end."""
PIPELINES = ("metadata-pipeline", "secure-metadata-pipeline")
BOOTSTRAP = "127.0.0.1:9092,127.0.0.1:9102,127.0.0.1:9112"
SPLIT_BOOTSTRAP = "127.0.0.1:9292,127.0.0.1:9302,127.0.0.1:9312"
MONITORING = ("prometheus", "alertmanager", "grafana")
PROFILES = ("--profile", "spark", "--profile", "secure-spark", "--profile", "split", "--profile", "monitoring")
STORE = "endpoint=http://s3:7070&region=us-east-1&path-style=true"
PIPELINE_TIMEOUT_S = 1500
"""Spark waits ten seconds for a Python worker. On a busy machine the job then ends, and compose starts it again."""
TOPIC = "through-everything"
STEP = 2_000
RECIPE = Recipe(4096, time.time_ns() // 1_000_000 - 3_600_000)


# -- configuration -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def services() -> Mapping[str, Any]:
    """Return the services as `docker compose config` resolves them, of all profiles."""
    if (reason := containers.compose_reason()) is not None:
        pytest.skip(reason)
    found = compose_document(*PROFILES, file=FILE)["services"]
    assert isinstance(found, dict)
    return found


def test_compose_accepts_the_file(services: Mapping[str, Any]) -> None:
    split = {*SPLIT_CONTROLLERS, *SPLIT_BROKERS}
    assert set(services) == {*NODES, *SECURE_NODES, *PIPELINES, *ONE_SHOTS, *MONITORING, *split, "s3"}
    assert {name for name, service in services.items() if service.get("profiles") == ["split"]} == split
    assert services["metadata-pipeline"]["profiles"] == ["spark"]
    assert services["secure-metadata-pipeline"]["profiles"] == ["secure-spark"]
    for name in (*SECURE_NODES, "secure-secrets", "secure-user"):
        assert services[name]["profiles"] == ["secure", "secure-spark"]


@pytest.mark.parametrize("name", NODES)
def test_node_loads_its_environment_as_config(name: str, services: Mapping[str, Any], tmp_path: Path) -> None:
    environment = services[name]["environment"]
    start = prepare(environment, tmp_path / "nothing-mounted")
    config, warnings = load_config(None, (), start.environment)
    assert warnings == []
    assert f"node-{config.node_id}" == name
    assert {voter.id for voter in config.voters} == {1, 2, 3}
    assert config.log_dirs == (services[name]["volumes"][0]["target"],)


@pytest.mark.parametrize("name", SECURE_NODES)
def test_secure_node_is_open_to_nobody(name: str, services: Mapping[str, Any], tmp_path: Path) -> None:
    start = prepare(services[name]["environment"], tmp_path / "nothing-mounted")
    config, warnings = load_config(None, (), start.environment)
    assert [*warnings, *exposure_warnings(config)] == []
    assert f"secure-node-{config.node_id}" == name
    assert set(config.listener_protocols.values()) == {"SASL_SSL", "SSL"}
    rules = parse_principal_rules(start.environment["KAFKA_SSL_PRINCIPAL_MAPPING_RULES"])
    super_users = start.environment["KAFKA_SUPER_USERS"].split(";")
    assert f"User:{rules.name_of(f'CN=node-{config.node_id}')}" in super_users


@pytest.mark.parametrize("name", [*SPLIT_CONTROLLERS, *SPLIT_BROKERS])
def test_split_node_has_one_role(name: str, services: Mapping[str, Any], tmp_path: Path) -> None:
    start = prepare(services[name]["environment"], tmp_path / "nothing-mounted")
    config, warnings = load_config(None, (), start.environment)
    assert warnings == []
    role = name.split("-")[1]
    assert (config.is_controller, config.is_broker) == (role == "controller", role == "broker")
    assert f"split-{role}-{config.node_id - (0 if role == 'controller' else 3)}" == name
    assert [voter.id for voter in config.voters] == [1, 2, 3]


def test_services_that_stay_have_health_checks(services: Mapping[str, Any]) -> None:
    """Check the file's own health checks; nodes have the one of their image, which a test below runs."""
    inherited = {*NODES, *SECURE_NODES, *SPLIT_CONTROLLERS, *SPLIT_BROKERS}
    for name, service in services.items():
        if name in ONE_SHOTS:
            assert service["healthcheck"] == {"disable": True}
        elif name in inherited:
            assert "healthcheck" not in service
            assert service["build"]["target"] == "ottla"
        else:
            assert (name, service["healthcheck"]["test"][0]) == (name, "CMD")


def test_services_run_with_few_privileges(services: Mapping[str, Any]) -> None:
    for name, service in services.items():
        assert (name, service["read_only"]) == (name, True)
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert {port["host_ip"] for port in service.get("ports", ())} <= {"127.0.0.1"}


@pytest.mark.parametrize("name", [*NODES, *SECURE_NODES, *SPLIT_CONTROLLERS, *SPLIT_BROKERS, *PIPELINES])
def test_services_with_data_have_a_long_stop_grace_period(name: str, services: Mapping[str, Any]) -> None:
    assert services[name]["stop_grace_period"] == "1m0s"
    assert services[name]["volumes"]
    assert services[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize(("name", "node"), [*zip(PIPELINES, ("node-1", "secure-node-1"), strict=True)])
def test_pipeline_parses_its_options(name: str, node: str, services: Mapping[str, Any]) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'ottla[spark]'")
    from spark_jobs.metadata_snapshots.__main__ import metadata_snapshots

    service = services[name]
    options = metadata_snapshots.make_context("metadata_snapshots", list(service["command"])).params
    for place in (options["out"], options["tables"]):
        assert parse_store_uri(place).bucket == "ottla"
    assert options["out"] == services[node]["environment"]["KAFKA_OTTLA_METADATA_SNAPSHOT_IMPORT_URI"]
    assert options["checkpoint"].startswith(service["volumes"][0]["target"])


def test_docker_context_holds_everything_in_the_image() -> None:
    """Check that the allow list `.dockerignore` names exactly the packages and files of the image."""
    named = {
        line.removeprefix("!") for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line[0] == "!"
    }
    packages = {path.parent.name for path in REPOSITORY.glob("*/__init__.py")} - {"tests"}
    assert named == packages | {"schemas", "pyproject.toml", "setup.py", "build_backend.py", "README.md", "LICENSE"}


# -- built and run -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    if (reason := containers.unavailable_reason()) is not None:
        pytest.skip(reason)
    with Engine(tmp_path_factory.mktemp("engine")) as running:
        running.variables["SNAPSHOT_INTERVAL_S"] = "5"
        yield running


@pytest.fixture(scope="module")
def compose(engine: Engine) -> Iterator[Engine]:
    engine.docker("compose", "up", "--detach", "--build", "--wait", "--wait-timeout", "300")
    try:
        yield engine
    finally:
        engine.docker(
            "compose",
            "--profile",
            "spark",
            "--profile",
            "monitoring",
            "down",
            "--volumes",
            "--timeout",
            "60",
            check=False,
        )


def _restart_nodes(engine: Engine) -> None:
    """Wait until all nodes are healthy. Compose does not wait for a node that was paused and is unhealthy at first."""
    engine.docker("compose", "up", "--detach")
    until(lambda: all(_status(engine, name)["State"]["Health"]["Status"] == "healthy" for name in NODES))
    until(lambda: len(admin_of(BOOTSTRAP).list_topics(timeout=10).brokers) == 3)


def _firing() -> set[str]:
    """Return the names of the alerts that Alertmanager has as active."""
    with urllib.request.urlopen("http://127.0.0.1:9093/api/v2/alerts?active=true", timeout=10) as response:
        return {alert["labels"]["alertname"] for alert in json.load(response)}


def _targets_up() -> int:
    """Return the number of nodes that Prometheus scrapes with success."""
    with urllib.request.urlopen(
        'http://127.0.0.1:9090/api/v1/query?query=sum(up{job="ottla"})', timeout=10
    ) as response:
        result = json.load(response)["data"]["result"]
    return int(result[0]["value"][1]) if result else 0


def _status(engine: Engine, service: str) -> dict[str, Any]:
    found = json.loads(engine.docker("inspect", f"ottla-{service}-1"))[0]
    assert isinstance(found, dict)
    return found


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_data_survives_killed_paused_disconnected_and_stopped_nodes(compose: Engine) -> None:
    create_topic(BOOTSTRAP, TOPIC, 1, segment_bytes="1048576", local_retention_bytes="1048576")
    write(BOOTSTRAP, TOPIC, RECIPE, 0, range(STEP))
    compose.docker("kill", "ottla-node-1-1")
    write(BOOTSTRAP, TOPIC, RECIPE, 0, range(STEP, 2 * STEP))
    _restart_nodes(compose)
    compose.docker("pause", "ottla-node-2-1")
    write(BOOTSTRAP, TOPIC, RECIPE, 0, range(2 * STEP, 3 * STEP))
    compose.docker("unpause", "ottla-node-2-1")
    _restart_nodes(compose)
    compose.docker("network", "disconnect", "ottla_cluster", "ottla-node-3-1")
    write(BOOTSTRAP, TOPIC, RECIPE, 0, range(3 * STEP, 4 * STEP))
    compose.docker("network", "connect", "--alias", "node-3", "ottla_cluster", "ottla-node-3-1")
    _restart_nodes(compose)
    _check_complete(4 * STEP)
    where = ("--bootstrap-server", "node-1:19092", "--json")
    described = json.loads(compose.docker("compose", "exec", "-T", "node-1", "ottla", "remote", "describe", *where))
    assert described, "no object of the topic is in S3"
    compose.docker("compose", "stop")
    codes = {name: _status(compose, name)["State"]["ExitCode"] for name in NODES}
    assert codes == dict.fromkeys(NODES, 0), "a node did not stop within its grace period"
    _restart_nodes(compose)
    _check_complete(4 * STEP)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_alert_fires_while_a_node_is_killed(compose: Engine) -> None:
    """Grafana is left out: no package of Debian replaces its image."""
    compose.build_monitoring_images()
    monitored = ("compose", "--profile", "monitoring", "up", "--detach", "--wait", "prometheus", "alertmanager")
    compose.docker(*monitored)
    until(lambda: _targets_up() == 3, timeout_s=120)
    compose.docker("kill", "ottla-node-3-1")
    until(lambda: "OttlaNodeDown" in _firing(), timeout_s=300)
    _restart_nodes(compose)
    until(lambda: "OttlaNodeDown" not in _firing(), timeout_s=600)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_split_profile_survives_a_killed_controller_and_a_killed_broker(compose: Engine) -> None:
    up = ("compose", "--profile", "split", "up", "--detach", "--wait", "--wait-timeout", "300")
    split = ("compose", "--profile", "split")
    try:
        compose.docker(*up, *SPLIT_BROKERS)
        create_topic(SPLIT_BOOTSTRAP, TOPIC, 1)
        write(SPLIT_BOOTSTRAP, TOPIC, RECIPE, 0, range(STEP))
        compose.docker("kill", "ottla-split-controller-1-1", "ottla-split-broker-2-1")
        write(SPLIT_BOOTSTRAP, TOPIC, RECIPE, 0, range(STEP, 2 * STEP))
        compose.docker(*up, *SPLIT_BROKERS)
        found = read_back(SPLIT_BOOTSTRAP, TOPIC, RECIPE, {0: 2 * STEP})
        assert (found.faults, found.count) == ([], 2 * STEP)
    finally:
        compose.docker(*split, "rm", "--stop", "--force", "--volumes", *SPLIT_BROKERS, *SPLIT_CONTROLLERS, check=False)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_pipeline_writes_snapshots_and_tables_to_the_store(compose: Engine) -> None:
    compose.docker("compose", "--profile", "spark", "up", "--detach", "--build", "metadata-pipeline", timeout_s=3000)
    until(lambda: "latest.json" in _objects(compose, f"s3://ottla/metadata?{STORE}"), timeout_s=PIPELINE_TIMEOUT_S)
    until(
        lambda: any(name.startswith("changes/") for name in _objects(compose, f"s3://ottla/tables?{STORE}")),
        timeout_s=120,
    )
    until(lambda: _status(compose, "metadata-pipeline")["State"]["Health"]["Status"] == "healthy", timeout_s=300)
    compose.docker("compose", "--profile", "spark", "stop", "metadata-pipeline")
    assert _status(compose, "metadata-pipeline")["State"]["ExitCode"] == 0


def _objects(engine: Engine, uri: str, service: str = "node-1") -> list[str]:
    """Return the object names at a place of the bucket, as listed by a node."""
    code = (
        f"from storage.tiered.loading.store_uri import open_store; place = open_store({uri!r});"
        " print(*(place.name(each.key) for each in place.store.list(place.prefix)), sep='\\n')"
    )
    return engine.docker("compose", "exec", "-T", service, "python", "-c", code).splitlines()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_secure_profile_lets_in_the_super_user_alone(
    engine: Engine, services: Mapping[str, Any], tmp_path: Path
) -> None:
    """The super user writes over TLS and SCRAM; the pipeline reads the metadata as a node."""
    secure = ("compose", "--profile", "secure-spark")
    own = [name for name, service in services.items() if "secure-spark" in service.get("profiles", ())]
    engine.docker("build", "--quiet", "--target", "ottla", "--tag", "ottla", str(REPOSITORY))
    try:
        engine.docker(*secure, "up", "--detach", "--build", "secure-user", "secure-metadata-pipeline", timeout_s=3000)
        until(lambda: _status(engine, "secure-user")["State"]["Status"] == "exited", timeout_s=120)
        assert _status(engine, "secure-user")["State"]["ExitCode"] == 0
        for name in ("librdkafka.properties", "ca.pem", "admin.password"):
            engine.docker("cp", f"ottla-secure-node-1-1:/etc/kafka/secrets/{name}", str(tmp_path / name))
        settings = {**read_properties(str(tmp_path / "librdkafka.properties")), "ssl.ca.location": f"{tmp_path}/ca.pem"}
        admin = AdminClient(settings)
        admin.create_topics([NewTopic("secured", 1, 3)])["secured"].result(60)
        assert _produced(settings) is None
        assert _principal(tmp_path, f"admin:{(tmp_path / 'admin.password').read_text().strip()}") == "User:admin"
        assert _principal(tmp_path, "admin:wrong") is None
        assert _produced({**settings, "sasl.password": "wrong"}) is not None
        place = f"s3://ottla/secure/metadata?{STORE}"
        until(lambda: "latest.json" in _objects(engine, place, "secure-node-1"), timeout_s=PIPELINE_TIMEOUT_S)
    finally:  # `down` would also stop the services without a profile, which other tests use
        engine.docker(*secure, "rm", "--stop", "--force", "--volumes", *own, check=False)


def _principal(secrets: Path, login: str) -> str | None:
    """Return the principal at the console of a secure node; None if the login is refused."""
    trust = ssl.create_default_context(cafile=str(secrets / "ca.pem"))
    connection = http.client.HTTPSConnection("127.0.0.1", 9744, timeout=30, context=trust)
    authorization = f"Basic {base64.b64encode(login.encode()).decode()}"
    connection.request("GET", "/console/api/session", headers={"Authorization": authorization})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return str(json.loads(text)["principal"]) if response.status == 200 else None


def _produced(settings: Mapping[str, str]) -> str | None:
    """Produce one record; return the error if it is not delivered within ten seconds."""
    outcome: list[str | None] = []
    producer = Producer({**settings, "message.timeout.ms": 10_000})
    producer.produce("secured", b"x", on_delivery=lambda error, _: outcome.append(error and error.str()))
    producer.flush(30)
    return outcome[0] if outcome else "no answer"


@pytest.mark.slow
def test_image_runs_as_an_unprivileged_user(compose: Engine) -> None:
    assert compose.docker("compose", "exec", "-T", "node-1", "id", "-u").strip() == "1000"
    assert _status(compose, "node-1")["HostConfig"]["ReadonlyRootfs"] is True


@pytest.mark.slow
def test_single_container_starts_like_kafkas_image(engine: Engine) -> None:
    """Start the container as Testcontainers' apache/kafka module does: its own script first, then the image's."""
    script = "export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://127.0.0.1:29092; exec /etc/kafka/docker/run"
    environment = {
        "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    }
    variables = [part for name, value in environment.items() for part in ("--env", f"{name}={value}")]
    engine.docker("build", "--quiet", "--target", "ottla", "--tag", "ottla", str(REPOSITORY))
    engine.docker(
        *("run", "--detach", "--name", "lone", "--publish", "127.0.0.1:29092:9092", *variables),
        *("ottla", "sh", "-c", script),
    )
    try:
        until(lambda: "Transitioning from RECOVERY to RUNNING" in engine.docker("logs", "lone"))
        write("127.0.0.1:29092", "hello", RECIPE, 0, range(10))
        tool = ("/opt/kafka/bin/kafka-topics.sh", "--bootstrap-server", "localhost:9092", "--list")
        assert engine.docker("exec", "lone", *tool).split() == ["hello"]
        engine.docker("stop", "lone")
        assert json.loads(engine.docker("inspect", "lone"))[0]["State"]["ExitCode"] == 0
    finally:
        engine.docker("rm", "--force", "--volumes", "lone")


def _check_complete(end: int) -> None:
    found = read_back(BOOTSTRAP, TOPIC, RECIPE, {0: end})
    assert found.faults == []
    assert found.count == end
