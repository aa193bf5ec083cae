"""Altering stored configs: operations, validation, and the written records."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest

from broker.metadata.controller.configs import AlterOperation, ConfigOperation
from broker.metadata.image.config_image import ConfigResource, ResourceType
from protocol.errors import ErrorCode
from protocol.messages.metadata_records import ClearElrRecord
from tests.broker.metadata.images import Cluster

TOPIC = ConfigResource(ResourceType.TOPIC, "t")
BROKER = ConfigResource(ResourceType.BROKER, "1")
EVERYWHERE = ConfigResource(ResourceType.BROKER, "")


class TwoVoters(NamedTuple):
    kraft_version: int = 1
    voter_ids: tuple[int, ...] = (1, 2)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(elr=True)
    cluster.start_brokers(1, 2)
    cluster.create_topic("t", [[1, 2]])
    return cluster


def alter(
    cluster: Cluster, resource: ConfigResource, *operations: tuple[str, int, str | None], validate_only: bool = False
) -> ErrorCode:
    changes: Mapping[ConfigResource, Sequence[ConfigOperation]] = {resource: [ConfigOperation(*o) for o in operations]}
    (outcome,) = cluster.write(cluster.controller.alter_configs(changes, validate_only=validate_only))
    assert outcome.resource == resource
    return outcome.code


def replace(cluster: Cluster, resource: ConfigResource, values: Mapping[str, str | None]) -> ErrorCode:
    (outcome,) = cluster.write(cluster.controller.replace_configs({resource: values}, validate_only=False))
    return outcome.code


def stored(cluster: Cluster, resource: ConfigResource = TOPIC) -> dict[str, str]:
    return dict(cluster.image.configs.of(*resource))


SET, DELETE, APPEND, SUBTRACT = AlterOperation


def test_set_and_delete_change_overrides(cluster: Cluster) -> None:
    assert alter(cluster, TOPIC, ("a", SET, "1"), ("b", SET, "2")) is ErrorCode.NONE
    assert stored(cluster) == {"a": "1", "b": "2"}
    assert alter(cluster, TOPIC, ("a", DELETE, None)) is ErrorCode.NONE
    assert stored(cluster) == {"b": "2"}


def test_append_and_subtract_edit_lists(cluster: Cluster) -> None:
    assert alter(cluster, TOPIC, ("cleanup.policy", APPEND, "compact")) is ErrorCode.NONE
    assert stored(cluster)["cleanup.policy"] == "delete,compact"
    before = cluster.controller.last_offset
    assert alter(cluster, TOPIC, ("cleanup.policy", APPEND, "compact")) is ErrorCode.NONE
    assert cluster.controller.last_offset == before, "a present item is not written again"
    assert alter(cluster, TOPIC, ("cleanup.policy", SUBTRACT, "delete")) is ErrorCode.NONE
    assert stored(cluster)["cleanup.policy"] == "compact"


def test_append_needs_a_list(cluster: Cluster) -> None:
    assert alter(cluster, TOPIC, ("retention.ms", APPEND, "1")) is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("resource", "operation", "code"),
    [
        (TOPIC, ("a", SET, "bad"), ErrorCode.INVALID_CONFIG),
        (TOPIC, ("a", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, ("a", 9, "1"), ErrorCode.INVALID_REQUEST),
        (ConfigResource(ResourceType.TOPIC, "nope"), ("a", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ConfigResource(ResourceType.BROKER, "x"), ("a", SET, "1"), ErrorCode.INVALID_REQUEST),
        (ConfigResource(ResourceType.BROKER, "77"), ("a", SET, "1"), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (ConfigResource(ResourceType.BROKER_LOGGER, "1"), ("a", SET, "INFO"), ErrorCode.INVALID_REQUEST),
        (BROKER, ("min.insync.replicas", SET, "2"), ErrorCode.INVALID_CONFIG),
        (EVERYWHERE, ("min.insync.replicas", DELETE, None), ErrorCode.INVALID_CONFIG),
        (EVERYWHERE, ("min.insync.replicas", SET, "2"), ErrorCode.NONE),
        (ConfigResource(ResourceType.GROUP, "g"), ("a", SET, "1"), ErrorCode.NONE),
        (ConfigResource(ResourceType.CLIENT_METRICS, "m"), ("a", SET, "1"), ErrorCode.NONE),
    ],
)
def test_invalid_changes_are_refused(
    cluster: Cluster, resource: ConfigResource, operation: tuple[str, int, str | None], code: ErrorCode
) -> None:
    assert alter(cluster, resource, operation) is code


def test_resource_is_altered_completely_or_not_at_all(cluster: Cluster) -> None:
    assert alter(cluster, TOPIC, ("a", SET, "1"), ("b", SET, "bad")) is ErrorCode.INVALID_CONFIG
    assert stored(cluster) == {}


def test_resources_succeed_and_fail_independently(cluster: Cluster) -> None:
    missing = ConfigResource(ResourceType.TOPIC, "nope")
    changes = {resource: [ConfigOperation("a", SET, "1")] for resource in (missing, TOPIC)}
    outcomes = cluster.write(cluster.controller.alter_configs(changes, validate_only=False))
    assert [outcome.code for outcome in outcomes] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert stored(cluster) == {"a": "1"}


def test_validate_only_writes_nothing(cluster: Cluster) -> None:
    assert alter(cluster, TOPIC, ("a", SET, "1"), validate_only=True) is ErrorCode.NONE
    assert stored(cluster) == {}


def test_unchanged_broker_configs_are_written_so_that_files_are_reloaded(cluster: Cluster) -> None:
    for _ in range(2):
        before = cluster.controller.last_offset
        assert alter(cluster, BROKER, ("log.cleaner.threads", SET, "2")) is ErrorCode.NONE
        assert cluster.controller.last_offset == before + 1


def test_replace_removes_unnamed_keys(cluster: Cluster) -> None:
    alter(cluster, TOPIC, ("a", SET, "1"), ("b", SET, "2"))
    assert replace(cluster, TOPIC, {"b": "2", "c": "3"}) is ErrorCode.NONE
    assert stored(cluster) == {"b": "2", "c": "3"}
    assert replace(cluster, TOPIC, {}) is ErrorCode.NONE
    assert cluster.image.configs.names(ResourceType.TOPIC) == []


def test_replace_refuses_null(cluster: Cluster) -> None:
    assert replace(cluster, TOPIC, {"a": None}) is ErrorCode.INVALID_REQUEST


class TestMinimumInSyncSize:
    """A changed minimum invalidates ELR members of the old one (KIP-966)."""

    @pytest.mark.parametrize(("resource", "named"), [(TOPIC, "t"), (EVERYWHERE, "")])
    def test_changed_minimum_clears_elr(self, cluster: Cluster, resource: ConfigResource, named: str) -> None:
        alter(cluster, TOPIC, ("min.insync.replicas", SET, "2"))
        cluster.expire_session(2, others=(1,))
        assert cluster.partition("t").elr == (2,)
        before = cluster.partition("t")
        changes = {resource: [ConfigOperation("min.insync.replicas", SET, "3")]}
        result = cluster.controller.alter_configs(changes, validate_only=False)
        assert result.records[-1].message == ClearElrRecord(topic_name=named)
        cluster.write(result)
        after = cluster.partition("t")
        assert after.elr == ()
        assert (after.leader_epoch, after.partition_epoch) == (before.leader_epoch, before.partition_epoch + 1)


def test_metadata_log_configs_are_read_only(cluster: Cluster) -> None:
    log = ConfigResource(ResourceType.TOPIC, "__cluster_metadata")
    assert alter(cluster, log, ("cleanup.policy", SET, "snapshot")) is ErrorCode.POLICY_VIOLATION
    assert alter(cluster, log, ("retention.ms", DELETE, None)) is ErrorCode.POLICY_VIOLATION
    assert replace(cluster, log, {}) is ErrorCode.POLICY_VIOLATION


def test_only_nodes_of_the_cluster_can_have_configs(cluster: Cluster) -> None:
    cluster = Cluster(quorum=TwoVoters())
    cluster.start_brokers(3)
    codes = [
        alter(cluster, ConfigResource(ResourceType.BROKER, name), ("a", SET, "1")) for name in ("1", "2", "3", "4")
    ]
    assert codes == [ErrorCode.NONE] * 3 + [ErrorCode.BROKER_ID_NOT_REGISTERED]


@pytest.mark.parametrize("kind", [ResourceType.GROUP, ResourceType.CLIENT_METRICS])
def test_groups_and_client_metrics_have_configs(cluster: Cluster, kind: ResourceType) -> None:
    resource = ConfigResource(kind, "g")
    assert alter(cluster, resource, ("interval.ms", SET, "100")) is ErrorCode.NONE
    cluster.fail_over()
    assert stored(cluster, resource) == {"interval.ms": "100"}
    assert replace(cluster, resource, {}) is ErrorCode.NONE
    assert cluster.image.configs.names(kind) == []


def test_changed_minimum_keeps_elr_that_is_the_only_evidence(cluster: Cluster) -> None:
    cluster.create_topic("u", [[1, 2], [2, 1]])
    cluster.heartbeat(2, want_fence=True)
    cluster.heartbeat(1, want_fence=True)
    trace = cluster.partition("u", 1)
    assert (trace.isr, trace.elr) == ((), (1,))
    assert alter(cluster, ConfigResource(ResourceType.TOPIC, "u"), ("min.insync.replicas", SET, "2")) is ErrorCode.NONE
    assert [cluster.partition("u", each).elr for each in (0, 1)] == [(1,), (1,)]
    cluster.heartbeat(1)
    assert cluster.partition("u", 1).leader == 1
