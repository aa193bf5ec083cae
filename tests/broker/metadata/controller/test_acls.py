"""CreateAcls, DeleteAcls and filters over entries (KIP-11, KIP-290)."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from broker.metadata.controller.acl_filter import AclFilter
from broker.metadata.image.security_image import AccessControlEntry
from protocol.errors import ErrorCode
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tests.broker.metadata.images import Cluster

TOPIC, GROUP, CLUSTER = 2, 3, 4
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
READ, WRITE = 3, 4
DENY, ALLOW = 2, 3


def creation(
    name: str = "t", pattern: int = LITERAL, *, principal: str = "User:u", operation: int = READ
) -> AclCreation:
    return AclCreation(TOPIC, name, pattern, principal, "*", operation, ALLOW)


def create(cluster: Cluster, *requested: AclCreation) -> list[ErrorCode]:
    response = cluster.write(cluster.controller.create_acls(CreateAclsRequest(list(requested))))
    return [ErrorCode(each.error_code) for each in response.results]


def delete(cluster: Cluster, *requested: DeleteAclsFilter) -> list[Sequence[str] | ErrorCode]:
    """Return per filter the resource names of the deleted entries, or the error."""
    response = cluster.write(cluster.controller.delete_acls(DeleteAclsRequest(list(requested))))
    return [
        sorted(acl.resource_name for acl in each.matching_acls) if each.error_code == 0 else ErrorCode(each.error_code)
        for each in response.filter_results
    ]


def named(name: str | None, pattern: int = LITERAL) -> DeleteAclsFilter:
    return DeleteAclsFilter(TOPIC, name, pattern, None, None, ANY, ANY)


def names(cluster: Cluster) -> list[str]:
    return sorted(entry.resource_name for entry in cluster.image.acls.entries.values())


class TestCreate:
    def test_created_entries_are_stored(self) -> None:
        cluster = Cluster()
        assert create(cluster, creation("a"), creation("b", PREFIXED)) == [ErrorCode.NONE] * 2
        cluster.fail_over()
        assert set(cluster.image.acls.entries.values()) == {
            AccessControlEntry(TOPIC, "a", LITERAL, "User:u", "*", READ, ALLOW),
            AccessControlEntry(TOPIC, "b", PREFIXED, "User:u", "*", READ, ALLOW),
        }

    def test_existing_entry_is_a_success_and_not_written_again(self) -> None:
        cluster = Cluster()
        assert create(cluster, creation(), creation()) == [ErrorCode.NONE] * 2
        before = cluster.controller.last_offset
        assert create(cluster, creation()) == [ErrorCode.NONE]
        assert (cluster.controller.last_offset, len(cluster.image.acls.entries)) == (before, 1)

    @pytest.mark.parametrize(
        "requested",
        [
            replace(creation(), resource_type=0),
            replace(creation(), resource_type=ANY),
            replace(creation(), resource_type=8),
            replace(creation(), resource_pattern_type=ANY),
            replace(creation(), resource_pattern_type=MATCH),
            replace(creation(), operation=0),
            replace(creation(), operation=ANY),
            replace(creation(), permission_type=ANY),
            replace(creation(), resource_name=""),
            replace(creation(), principal="u"),
            replace(creation(), resource_type=CLUSTER),
        ],
    )
    def test_invalid_entries_are_refused(self, requested: AclCreation) -> None:
        cluster = Cluster()
        assert create(cluster, creation("fine"), requested) == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
        assert names(cluster) == ["fine"]

    def test_cluster_resource_has_one_name(self) -> None:
        requested = replace(creation("kafka-cluster"), resource_type=CLUSTER)
        assert create(Cluster(), requested) == [ErrorCode.NONE]


class TestDelete:
    @pytest.fixture
    def cluster(self) -> Cluster:
        cluster = Cluster()
        create(cluster, creation("orders"), creation("*"), creation("ord", PREFIXED), creation("ord"))
        return cluster

    @pytest.mark.parametrize(
        ("requested", "removed"),
        [
            (named("ord"), ["ord"]),
            (named("ord", ANY), ["ord", "ord"]),
            (named("orders", MATCH), ["*", "ord", "orders"]),
            (named(None, PREFIXED), ["ord"]),
            (named(None, MATCH), ["*", "ord", "ord", "orders"]),
            (replace(named(None, ANY), resource_type_filter=GROUP), []),
            (replace(named(None, ANY), principal_filter="User:v"), []),
            (replace(named(None, ANY), host_filter="h"), []),
            (replace(named(None, ANY), operation=WRITE), []),
            (replace(named(None, ANY), permission_type=DENY), []),
        ],
    )
    def test_filter_removes_matching_entries(
        self, cluster: Cluster, requested: DeleteAclsFilter, removed: list[str]
    ) -> None:
        before = names(cluster)
        assert delete(cluster, requested) == [removed]
        assert sorted([*names(cluster), *removed]) == before

    def test_overlapping_filters_report_an_entry_twice_and_remove_it_once(self, cluster: Cluster) -> None:
        assert delete(cluster, named("ord"), named(None)) == [["ord"], ["*", "ord", "orders"]]
        assert names(cluster) == ["ord"]

    def test_filters_with_unknown_numbers_are_refused(self, cluster: Cluster) -> None:
        wrong = replace(named(None), operation=0)
        assert delete(cluster, wrong, named("*")) == [ErrorCode.INVALID_REQUEST, ["*"]]


def test_prefixed_entry_applies_only_to_names_with_its_prefix() -> None:
    entry = AccessControlEntry(TOPIC, "ab", PREFIXED, "User:u", "*", READ, ALLOW)
    by_name = {name: AclFilter(ANY, name, MATCH, None, None, ANY, ANY).matches(entry) for name in ("abc", "ab", "a")}
    assert by_name == {"abc": True, "ab": True, "a": False}
