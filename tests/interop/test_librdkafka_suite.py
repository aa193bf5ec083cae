"""librdkafka's own integration tests against three brokers on three racks, in both group protocols.

Tests in librdkafka_tests.txt must pass; the list only grows. The suite takes a quarter of an hour and a compiler, so it
runs only with OTTLA_LIBRDKAFKA=1.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from broker.authorizer.standard import STANDARD_AUTHORIZER
from tests.support.kafka.apache_kafka import REPOSITORY, free_ports
from tests.support.processes import librdkafka_suite
from tests.support.processes.broker_cluster import BrokerCluster
from tests.support.processes.librdkafka_suite import run_suite, write_tools

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ALLOWED = frozenset((Path(__file__).parent / "librdkafka_tests.txt").read_text().split())
LEAST = 120
LEAST_WITH_CONSUMER_PROTOCOL = 75
PARALLEL = 3
NOT_STARTED = "0080"
"""Numbers of tests that do not run at all, comma-separated."""

SETTINGS = {
    "auto.create.topics.enable": "true",
    "default.replication.factor": "3",
    "num.partitions": "4",
    "connections.max.idle.ms": "60000",
    "offsets.topic.num.partitions": "10",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "3000",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",
}
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "alice-secret",
}
SESSION_MS = 4_000
"""Time after which a connection has to log in again (KIP-368)."""

CERTIFICATES = "needs the certificates that librdkafka's test cluster writes in all formats"
PROVIDERS = "needs the identity providers that librdkafka's test cluster emulates"
LOGINS = "needs logins: test_tests_pass_with_logins runs it"
SMALL_SEGMENTS = "creates a topic with segment.bytes below 1 MiB, which Kafka 4 refuses too (KIP-1030)"
RAPIDJSON = "the suite is built without RapidJSON"
SOCKET_EMULATION = "emulates slow sockets in the whole process, beside other tests"
QUICK = "does nothing in quick mode"
KNOWN_ISSUE = "librdkafka skips it as a known issue of its own"
SCENARIO = "belongs to another test scenario of librdkafka: no automatic topic creation"
MANUAL = "librdkafka runs it by hand only"
OTHER_PROTOCOL = "tests the group protocol consumer with librdkafka's mock cluster"

LEFT_OUT = {
    "0028_long_topicnames": KNOWN_ISSUE,
    "0045_subscribe_update_non_exist_and_partchange": SCENARIO,
    "0045_subscribe_update_topic_remove": SCENARIO,
    "0047_partial_buf_tmout": KNOWN_ISSUE,
    "0049_consume_conn_close": SOCKET_EMULATION,
    "0053_stats": RAPIDJSON,
    "0068_produce_timeout": SOCKET_EMULATION,
    "0075_retry": SOCKET_EMULATION,
    "0076_produce_retry": SOCKET_EMULATION,
    "0077_compaction": SMALL_SEGMENTS,
    "0079_fork": KNOWN_ISSUE,
    "0080_admin_ut": "measures tenths of a second without a broker, and fails on a busy machine",
    "0082_fetch_max_bytes": QUICK,
    "0088_produce_metadata_timeout": SOCKET_EMULATION,
    "0092_mixed_msgver": "writes message format 1, which Kafka 4 has no longer",
    "0094_idempotence_msg_timeout": SOCKET_EMULATION,
    "0097_ssl_verify": CERTIFICATES,
    "0098_consumer_txn": RAPIDJSON,
    "0101_fetch_from_follower": RAPIDJSON,
    "0102_static_group_rebalance_mock": OTHER_PROTOCOL,
    "0107_topic_recreate": SCENARIO,
    "0110_batch_size": RAPIDJSON,
    "0111_delay_create_topics": SCENARIO,
    "0126_oauthbearer_oidc": PROVIDERS,
    "0129_fetch_aborted_msgs": SMALL_SEGMENTS,
    "0135_sasl_credentials": LOGINS,
    "0142_reauthentication": LOGINS,
    "0147_consumer_group_consumer_mock": OTHER_PROTOCOL,
    "0148_offset_fetch_commit_error_mock": OTHER_PROTOCOL,
    "0153_memberid": OTHER_PROTOCOL,
    "8000_idle": MANUAL,
    "8001_fetch_from_follower_mock_manual": MANUAL,
}
"""Tests that fail or skip themselves with the classic protocol, with reasons. The list only gets shorter."""


def test_allow_list_is_long_and_has_no_test_that_is_left_out() -> None:
    assert len(ALLOWED) >= LEAST
    assert ALLOWED & LEFT_OUT.keys() == frozenset()


class LibrdkafkaCluster(BrokerCluster):
    """Three brokers on three racks. Clients log in at one of two listeners, and log in again every SESSION_MS."""

    def __init__(self, directory: Path) -> None:
        racks = {broker: {"broker.rack": f"RACK{broker}"} for broker in (1, 2, 3)}
        super().__init__(directory, settings=SETTINGS, each=racks)
        ports = free_ports(len(racks))
        self.login_bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
        user, password = LOGIN["sasl.username"], LOGIN["sasl.password"]
        for broker, port in zip(self.brokers.values(), ports, strict=True):
            broker.settings |= {
                "listeners": f"PLAINTEXT://127.0.0.1:{broker.port},CLIENT://127.0.0.1:{port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
                "listener.name.client.sasl.enabled.mechanisms": LOGIN["sasl.mechanism"],
                "listener.name.client.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule"
                f' required user_{user}="{password}";',
                "connections.max.reauth.ms": str(SESSION_MS),
            }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LibrdkafkaCluster]:
    if os.environ.get("OTTLA_LIBRDKAFKA") != "1":
        pytest.skip("takes a quarter of an hour; set OTTLA_LIBRDKAFKA=1 to run it")
    if (reason := librdkafka_suite.unavailable_reason()) is not None:
        pytest.skip(reason)
    with LibrdkafkaCluster(tmp_path_factory.mktemp("librdkafka")) as running:
        yield running


def passed_in(states: Mapping[str, str]) -> set[str]:
    return {name for name, state in states.items() if state == "PASSED"}


def numbers_of(names: Iterable[str]) -> str:
    """Return the numbers of tests, as the variable TESTS has them."""
    return ",".join(sorted(name.partition("_")[0] for name in names))


def test_every_test_passes_or_has_a_reason(cluster: LibrdkafkaCluster, tmp_path: Path) -> None:
    write_tools(tmp_path, REPOSITORY)
    states = run_suite(cluster.bootstrap, tmp_path, ("-Q", "-E", "-K", f"-p{PARALLEL}"), TESTS_SKIP=NOT_STARTED)
    passed = passed_in(states)
    print(f"{len(passed)} passed, {len(states) - len(passed)} failed or skipped")
    missed = {name for name in ALLOWED - passed if name.endswith("_mock")}
    if missed:
        # They use no broker but librdkafka's mock cluster, and measure times, which tests beside them prolong.
        print(f"alone, once more: {', '.join(sorted(missed))}")
        alone = tmp_path / "alone"
        write_tools(alone, REPOSITORY)
        passed |= passed_in(run_suite(cluster.bootstrap, alone, ("-Q", "-E", "-p1"), TESTS=numbers_of(missed)))
    assert ALLOWED - passed == frozenset(), (tmp_path / "output.log").read_text(errors="replace")[-20_000:]
    assert passed - ALLOWED == frozenset(), "add these tests to librdkafka_tests.txt"
    assert states.keys() - passed == LEFT_OUT.keys()


def test_tests_pass_with_the_protocol_consumer(cluster: LibrdkafkaCluster, tmp_path: Path) -> None:
    """Run the tests that use the brokers again. librdkafka skips some in this protocol."""
    write_tools(tmp_path, REPOSITORY)
    states = run_suite(
        cluster.bootstrap, tmp_path, ("-Q", "-E", "-K", "-L", f"-p{PARALLEL}"), TEST_CONSUMER_GROUP_PROTOCOL="consumer"
    )
    failed = {name for name, state in states.items() if state not in ("PASSED", "SKIPPED")}
    passed = [name for name, state in states.items() if state == "PASSED"]
    print(f"{len(passed)} passed, {len(failed)} failed")
    assert failed - LEFT_OUT.keys() == set(), (tmp_path / "output.log").read_text(errors="replace")[-20_000:]
    assert len(passed) >= LEAST_WITH_CONSUMER_PROTOCOL


def test_tests_pass_with_logins(cluster: LibrdkafkaCluster, tmp_path: Path) -> None:
    wanted = sorted(name for name, reason in LEFT_OUT.items() if reason == LOGINS)
    states = run_suite(cluster.login_bootstrap, tmp_path, ("-E",), LOGIN, TESTS=numbers_of(wanted))
    output = (tmp_path / "output.log").read_text(errors="replace")
    assert {name: states[name] for name in wanted} == dict.fromkeys(wanted, "PASSED"), output[-20_000:]
