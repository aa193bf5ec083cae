"""The image in place of apache/kafka: its size, Testcontainers, and compose files written for the other image.

Everything here builds the image, and runs where OTTLA_COMPOSE=1 (`make testcontainers`).
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.clients.checkable_records import Recipe, read_back, write
from tests.support.clients.partition_states import until
from tests.support.kafka.apache_kafka import REPOSITORY
from tests.support.processes import containers
from tests.support.processes.containers import Engine

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent / "containers"
JARS = REPOSITORY / "build" / "testcontainers"
KAFKA_SOURCES = Path(os.environ.get("OTTLA_KAFKA_SOURCES") or REPOSITORY / "build" / "kafka-sources")
"""A checkout of Apache Kafka, for its compose files. They are used where they are, and not part of this repository."""
RECIPE = Recipe(1024, 1_700_000_000_000)
SIZE_MAX = 150_000_000
"""Bytes of all layers, unpacked; Docker's tools count megabytes by powers of ten."""
PUBLIC_FILES = {
    "single-node/plaintext": ("localhost:9092",),
    "cluster/combined/plaintext": ("localhost:29092", "localhost:39092", "localhost:49092"),
    "cluster/isolated/plaintext": ("localhost:29092", "localhost:39092", "localhost:49092"),
    "cluster/combined/ssl": ("localhost:29093", "localhost:39093", "localhost:49093"),
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    if (reason := containers.unavailable_reason()) is not None:
        pytest.skip(reason)
    with Engine(tmp_path_factory.mktemp("engine")) as running:
        arguments = ("--build-arg", "OTTLA_COMMIT=0123456789ab", "--target", "ottla", "--tag", "ottla:7.6.0")
        running.docker("build", "--quiet", *arguments, str(REPOSITORY))
        running.docker("tag", "ottla:7.6.0", "ottla")
        yield running


def test_image_is_smaller_than_150_megabytes(engine: Engine) -> None:
    size = int(engine.docker("image", "inspect", "--format", "{{.Size}}", "ottla"))
    print(f"image: {size:,} bytes")
    assert size < SIZE_MAX


def test_image_tells_its_commit_and_has_compiled_modules(engine: Engine) -> None:
    told = engine.docker("run", "--rm", "ottla", "ottla", "--version")
    assert told == "ottla 0.1.0 (commit 0123456789ab, compiled)\n"


def test_every_command_of_the_image_starts(engine: Engine) -> None:
    """Import each command, so that no module is missing that the image leaves out."""
    code = (
        "from importlib import import_module; from broker.cli.catalogue import COMMANDS;"
        " [import_module(f'broker.cli.{each.module}') for each in COMMANDS.values()];"
        " import boto3; boto3.client('s3', region_name='us-east-1'); print(len(COMMANDS))"
    )
    assert int(engine.docker("run", "--rm", "--read-only", "ottla", "python", "-c", code)) > 10


@pytest.mark.parametrize("mode", ["kraft", "zookeeper"])
def test_python_testcontainers_start_the_image(mode: str, engine: Engine) -> None:
    pytest.importorskip("testcontainers", reason="pip install 'ottla[containers]'")
    output = _client(engine, sys.executable, str(HERE / "round_trip.py"), "ottla:7.6.0", mode)
    assert output.endswith("read key=hello\n")


def test_java_testcontainers_start_the_image(engine: Engine) -> None:
    if (reason := _jars_reason()) is not None:
        pytest.skip(reason)
    java = ("java", "-Xmx256m", "-cp", f"{JARS}/*", str(HERE / "RoundTrip.java"), "ottla:7.6.0")
    assert "read key=hello\n" in _client(engine, *java)


def _jars_reason() -> str | None:
    """Return the reason for which Testcontainers' jars cannot be had, or None once they are in `build/`."""
    if (missing := next((each for each in ("java", "mvn") if shutil.which(each) is None), None)) is not None:
        return f"{missing} is not on PATH"
    JARS.mkdir(parents=True, exist_ok=True)
    with (JARS / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mvn = ("mvn", "--batch-mode", "--quiet", "--file", str(HERE / "pom.xml"), "dependency:copy-dependencies")
        done = subprocess.run([*mvn, f"-DoutputDirectory={JARS}"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"Maven could not resolve Testcontainers: {done.stdout[-500:]}"


def _client(engine: Engine, *command: str) -> str:
    """Return the output of a program that uses Testcontainers. Its helper containers need a registry, so none start."""
    environment = {
        **engine.environment,
        "TESTCONTAINERS_RYUK_DISABLED": "true",
        "TESTCONTAINERS_CHECKS_DISABLE": "true",
        "TESTCONTAINERS_HOST_OVERRIDE": "localhost",
        "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.parametrize("name", PUBLIC_FILES)
def test_compose_file_of_apache_kafka_starts_with_this_image(name: str, engine: Engine, tmp_path: Path) -> None:
    examples = KAFKA_SOURCES / "docker" / "examples"
    if not examples.is_dir():
        pytest.skip(f"no checkout of Apache Kafka at {KAFKA_SOURCES}: clone it there or set OTTLA_KAFKA_SOURCES")
    file = examples / "docker-compose-files" / name / "docker-compose.yml"
    compose = ("compose", "--project-name", "public", "--file", str(file))
    engine.variables["IMAGE"] = "ottla"
    bootstrap = ",".join(PUBLIC_FILES[name])
    settings = _tls_settings(examples, tmp_path) if "ssl" in name else {}
    try:
        engine.docker(*compose, "up", "--detach")
        until(lambda: _brokers(bootstrap, settings) == len(PUBLIC_FILES[name]), timeout_s=180)
        _round_trip(bootstrap, settings)
    except BaseException:
        print(engine.docker(*compose, "logs", "--tail", "30", check=False))
        raise
    finally:
        engine.docker(*compose, "down", "--volumes", "--timeout", "20", check=False)


def _tls_settings(examples: Path, directory: Path) -> Mapping[str, str]:
    """Return librdkafka's settings for the key stores beside the examples, whose passwords are published with them."""
    secrets = examples / "fixtures"
    authority = directory / "ca.pem"
    keytool = ("keytool", "-exportcert", "-rfc", "-alias", "caroot", "-storepass", "abcdefgh")
    exported = subprocess.run(
        [*keytool, "-keystore", str(secrets / "secrets" / "kafka.truststore.jks")],
        capture_output=True,
        text=True,
        check=True,
    )
    authority.write_text(exported.stdout)
    return {
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority),
        "ssl.keystore.location": str(secrets / "client-secrets" / "client.keystore.jks"),
        "ssl.keystore.password": "abcdefgh",
        "ssl.endpoint.identification.algorithm": "none",
    }


def _brokers(bootstrap: str, settings: Mapping[str, str]) -> int:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        return len(AdminClient({"bootstrap.servers": bootstrap, **settings}).list_topics(timeout=5).brokers)
    except KafkaException:
        return 0


def _round_trip(bootstrap: str, settings: Mapping[str, str]) -> None:
    if not settings:
        write(bootstrap, "hello", RECIPE, 0, range(100))
        found = read_back(bootstrap, "hello", RECIPE, {0: 100})
        assert (found.faults, found.count) == ([], 100)
        return
    from confluent_kafka import Consumer, Producer

    common = {"bootstrap.servers": bootstrap, **settings}
    producer = Producer(common)
    producer.produce("hello", b"value", b"key")
    assert producer.flush(60) == 0
    consumer = Consumer({**common, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["hello"])
    record = consumer.poll(60)
    consumer.close()
    assert record is not None
    assert (record.key(), record.value()) == (b"key", b"value")


def test_container_without_settings_serves_and_stops_cleanly(engine: Engine) -> None:
    engine.docker("run", "--detach", "--name", "plain", "ottla")
    try:
        until(lambda: json.loads(engine.docker("inspect", "plain"))[0]["State"]["Health"]["Status"] == "healthy")
        engine.docker("stop", "plain")
        assert json.loads(engine.docker("inspect", "plain"))[0]["State"]["ExitCode"] == 0
    finally:
        engine.docker("rm", "--force", "--volumes", "plain")
