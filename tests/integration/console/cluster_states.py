"""A cluster in the states that the browser tests look at: a half-tiered topic, a lagging group, a share group with
records in delivery, an open transaction, ACLs, quotas, users, names that look like markup.

An authorizer decides. Brokers, the tests' clients and the console's user `admin` are super users; `viewer` may describe
one topic.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import confluent_kafka
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    OffsetSpec,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from broker.client import Client, ClientConfig, raise_for
from protocol.messages import alter_client_quotas as quotas
from protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.support.processes.broker_cluster import BrokerCluster

T = TypeVar("T")

TOPIC: Final = "payments"
TIERED: Final = "archive"
GROUP: Final = "billing"
PARTITIONS: Final = 3
RECORDS: Final = 900
COMMITTED: Final = 100
JOBS: Final = "jobs"
LEDGER: Final = "ledger"
TRANSACTION: Final = "payer"
ADMIN: Final = ("admin", "admin-secret")
VIEWER: Final = ("viewer", "viewer-secret")
ACTIONS: Final = "ottla.console.actions.enable"
LIMIT_S: Final = 180.0
HOSTILE: Final = '<img src=x onerror="document.title=1">'
"""Text that would run if the page took it for markup."""


class _Silent:
    def log(self, *_: object) -> None: ...


SETTINGS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "local",
}


def settings(directory: Path) -> dict[str, str]:
    """Return the settings of all nodes; the console's credentials are in a file."""
    directory.mkdir(parents=True, exist_ok=True)
    credentials = directory / "credentials"
    credentials.touch(0o600)
    credentials.write_text("".join(f"{name}:{password}\n" for name, password in (ADMIN, VIEWER)))
    return {**SETTINGS, "ottla.http.credentials.location": str(credentials)}


def remote_settings(directory: Path) -> dict[str, str]:
    """Return the settings of brokers with remote storage in a directory."""
    return {
        "rsm.config.storage.root": str(directory),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "remote.log.manager.task.interval.ms": "200",
        "log.retention.check.interval.ms": "200",
        "log.initial.task.delay.ms": "100",
    }


def wait_for(read: Callable[[], T], is_reached: Callable[[T], bool], what: str) -> T:
    """Return the first value of `read` that satisfies `is_reached`. Raise AssertionError after three minutes."""
    deadline = time.monotonic() + LIMIT_S
    while not is_reached(value := read()):
        assert time.monotonic() < deadline, f"{what}: {value}"
        time.sleep(0.1)
    return value


class ClusterStates:
    """Topics, records and groups of a running cluster, and the admin API's view of them."""

    def __init__(self, cluster: BrokerCluster) -> None:
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "logger": _Silent()})
        self.client = Client(ClientConfig.parse(cluster.bootstrap))
        self._open: confluent_kafka.Producer | None = None

    def close(self) -> None:
        """Close the connections of the blocking client."""
        self.client.close()

    def fill(self) -> None:
        """Create the topics, write records, commit offsets behind the end, and open a transaction."""
        tiered = {"remote.storage.enable": "true", "segment.bytes": "1048576", "local.retention.bytes": "1"}
        topics = [
            NewTopic(TOPIC, PARTITIONS, 3),
            NewTopic(TIERED, 1, 3, config=tiered),
            NewTopic(JOBS, 1, 3),
            NewTopic(LEDGER, 2, 3),
        ]
        for created in self.admin.create_topics(topics).values():
            created.result(LIMIT_S)
        producer = confluent_kafka.Producer({"bootstrap.servers": self.cluster.bootstrap, "logger": _Silent()})
        for number in range(RECORDS):
            value = f'{{"number": {number}, "note": "round {number % 7}"}}'
            producer.produce(TOPIC, value, key=f"key-{number}", partition=number % PARTITIONS)
        headers = [("trace", b"\x00\xff"), (HOSTILE, HOSTILE.encode())]
        producer.produce(TOPIC, HOSTILE, key=HOSTILE, partition=0, headers=headers)
        assert producer.flush(LIMIT_S) == 0
        for _ in range(6):  # a segment each
            for number in range(11):
                producer.produce(TIERED, b"x" * 100_000, key=str(number), partition=0)
            assert producer.flush(LIMIT_S) == 0
        self.commit(GROUP, COMMITTED)
        self.commit(HOSTILE, COMMITTED)
        self._secure()
        self._begin(TRANSACTION)

    def _secure(self) -> None:
        """Create ACLs, quotas and users."""
        names = [(f"User:{VIEWER[0]}", TOPIC, 8, 3, 3), (f"User:{HOSTILE}", "pay", 2, 2, 4)]
        acls = [
            AclCreation(2, name, pattern, principal, "*", operation, permission)
            for principal, name, operation, permission, pattern in names
        ]
        for created in self.client.call(CreateAclsRequest(acls), CreateAclsResponse).results:
            raise_for(created.error_code, "ACL", created.error_message)
        entries = [
            quotas.AlterClientQuotasRequestEntryData(
                [quotas.AlterClientQuotasRequestEntityData("user", user)],
                [quotas.OpData("producer_byte_rate", 1_000_000.0)],
            )
            for user in (VIEWER[0], HOSTILE, None)
        ]
        for altered in self.client.call(
            quotas.AlterClientQuotasRequest(entries), quotas.AlterClientQuotasResponse
        ).entries:
            raise_for(altered.error_code, "quota", altered.error_message)
        credential = UserScramCredentialUpsertion(
            "carol", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096), b"pw"
        )
        self.admin.alter_user_scram_credentials([credential])["carol"].result(LIMIT_S)

    def _begin(self, transactional_id: str) -> None:
        """Leave a transaction open on both partitions of a topic."""
        self._open = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 600_000,
                "logger": _Silent(),
            }
        )
        self._open.init_transactions(LIMIT_S)
        self._open.begin_transaction()
        for partition in range(2):
            self._open.produce(LEDGER, b"pending", partition=partition)
        assert self._open.flush(LIMIT_S) == 0

    def alter_config(self, kind: int, name: str, key: str, value: str) -> None:
        """Set a dynamic config; `kind` is the number of the resource type."""
        resource = AlterConfigsResource(kind, name, [AlterableConfig(key, 0, value)])
        request = IncrementalAlterConfigsRequest([resource])
        (altered,) = self.client.call(request, IncrementalAlterConfigsResponse).responses
        raise_for(altered.error_code, name, altered.error_message)

    def produce(self, topic: str, count: int) -> None:
        """Write small records to partition 0."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.cluster.bootstrap, "logger": _Silent()})
        for number in range(count):
            producer.produce(topic, f"{number}", partition=0)
        assert producer.flush(LIMIT_S) == 0

    def commit(self, group: str, offset: int) -> None:
        """Commit `offset` for every partition."""
        partitions = [OffsetCommitRequestPartition(index, offset, -1, "") for index in range(PARTITIONS)]
        request = OffsetCommitRequest(group, topics=[OffsetCommitRequestTopic(TOPIC, partitions=partitions)])

        def attempt() -> None:
            response = self.client.coordinator(group).call(request, OffsetCommitResponse, highest=9)
            for each in response.topics[0].partitions:
                raise_for(each.error_code, group)

        self.client.retrying(attempt)

    def ends(self, topic: str, partitions: int) -> list[int]:
        """Return the end offsets, as the admin API lists them."""
        wanted = {confluent_kafka.TopicPartition(topic, index): OffsetSpec.latest() for index in range(partitions)}
        found = self.admin.list_offsets(wanted)
        return [found[place].result(LIMIT_S).offset for place in sorted(wanted, key=lambda each: each.partition)]

    def leaders(self, topic: str) -> list[tuple[int, list[int]]]:
        """Return leader and in-sync replicas of each partition, as the admin API describes them."""
        found = self.admin.list_topics(topic, LIMIT_S).topics[topic].partitions
        return [(found[index].leader, sorted(found[index].isrs)) for index in sorted(found)]

    def lag(self, group: str) -> list[int]:
        """Return the lag of each partition, computed from the admin API's offsets."""
        request = [ConsumerGroupTopicPartitions(group)]
        found = self.admin.list_consumer_group_offsets(request)[group].result(LIMIT_S).topic_partitions
        committed = {place.partition: place.offset for place in found}
        return [end - committed[index] for index, end in enumerate(self.ends(TOPIC, PARTITIONS))]
