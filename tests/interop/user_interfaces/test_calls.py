"""The calls of user interfaces, made with the Java client that each brings, against Apache Kafka and Ottla.

`java/UserInterfaceCalls.java` has the calls as the sources of the user interfaces make them; docs/clients.md names the
versions. The user interfaces themselves need packages from registries of their own.
"""

import fcntl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.authorizer.standard import STANDARD_AUTHORIZER
from tests.support.kafka.apache_kafka import JARS, REPOSITORY, apache_kafka, unavailable_reason
from tests.support.processes.ottla_node import OttlaNode

pytestmark = pytest.mark.interop

HERE = Path(__file__).parent
PROGRAM = HERE.parent / "java" / "UserInterfaceCalls.java"
CLIENTS = REPOSITORY / "build" / "kafka" / "clients"
CLIENT_OF = {"kafbat": "3.9.1", "akhq": "3.6.2"}
"""The version of the Java client of each user interface."""
LIBRARIES = ("slf4j-api", "lz4-java", "snappy-java", "zstd-jni")

REPLICATION_FACTORS = (
    "offsets.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "transaction.state.log.min.isr",
    "transaction.state.log.replication.factor",
)
SETTINGS = {"num.partitions": "1", "group.initial.rebalance.delay.ms": "0", "super.users": "User:ANONYMOUS"}
SETTINGS |= dict.fromkeys(REPLICATION_FACTORS, "1")
KAFKAS_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

Outcomes = tuple[dict[str, str], dict[str, str]]
"""Outcomes by the name of the call, of Apache Kafka and of Ottla."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    if (reason := unavailable_reason() or clients_unavailable_reason()) is not None:
        pytest.skip(reason)
    theirs, ours = tmp_path_factory.mktemp("kafka"), tmp_path_factory.mktemp("ottla")
    with (
        apache_kafka(theirs, SETTINGS | {"authorizer.class.name": KAFKAS_AUTHORIZER}, heap="512m") as kafka,
        OttlaNode(ours, SETTINGS | {"authorizer.class.name": STANDARD_AUTHORIZER}) as node,
    ):
        yield kafka, node.bootstrap


def clients_unavailable_reason() -> str | None:
    """Copy the clients to `build/` once; return the reason for which Maven cannot resolve them."""
    CLIENTS.mkdir(parents=True, exist_ok=True)
    with (JARS / ".lock").open("w") as lock:  # concurrent writers corrupt Maven's repository
        fcntl.flock(lock, fcntl.LOCK_EX)
        if all(client_jar(version).exists() for version in CLIENT_OF.values()):
            return None
        command = ["mvn", "--batch-mode", "--quiet", "--file", str(HERE / "pom.xml"), "dependency:copy"]
        copied = subprocess.run([*command, f"-DoutputDirectory={CLIENTS}"], capture_output=True, text=True, check=False)
    return None if copied.returncode == 0 else f"Maven could not resolve the Java clients: {copied.stdout[-500:]}"


def client_jar(version: str) -> Path:
    return CLIENTS / f"kafka-clients-{version}.jar"


def outcomes_of(user_interface: str, brokers: tuple[str, str]) -> Outcomes:
    libraries = [str(jar) for name in LIBRARIES for jar in JARS.glob(f"{name}-*.jar")]
    jars = ":".join([str(client_jar(CLIENT_OF[user_interface])), *libraries])
    command = ["java", "-Xmx256m", "-cp", jars, str(PROGRAM), user_interface, *brokers]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    found: Outcomes = ({}, {})
    for line in done.stdout.splitlines():
        index, name, outcome = line.split("\t")
        found[int(index)][name] = outcome
    return found


@pytest.mark.parametrize("user_interface", CLIENT_OF)
def test_calls_have_the_outcomes_of_apache_kafka(user_interface: str, brokers: tuple[str, str]) -> None:
    theirs, ours = outcomes_of(user_interface, brokers)
    assert len(theirs) > 25
    assert ours == theirs
