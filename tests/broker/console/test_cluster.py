"""Requests of the console to nodes, and the principal's rights."""

from http import HTTPStatus

import pytest

from broker.api.pipeline.permission import (
    DESCRIBE_TOPIC,
    READ_TOPIC,
    AclOperation,
    AclResourceType,
)
from broker.console.cluster import check
from broker.console.request import ConsoleError
from broker.net.peer import PeerError
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.broker.metadata.images import image_with
from tests.support.fakes.fake_authorizer import GrantedPermissions
from tests.support.harnesses.console_harness import ALICE, ConsoleHarness, asked

READ_A = (ALICE, AclOperation.READ, AclResourceType.TOPIC, "a")


def cluster_of(*brokers: int, fenced: tuple[int, ...] = ()) -> ConsoleHarness:
    harness = ConsoleHarness(image_with(brokers=brokers, fenced=fenced))
    harness.nodes.answers[ListGroupsRequest] = lambda node, request: ListGroupsResponse(throttle_time_ms=node)
    return harness


async def test_all_nodes_are_asked_and_the_silent_ones_named() -> None:
    harness = cluster_of(1, 2, 3)
    harness.nodes.silent.add(2)
    answers = await harness.cluster.ask_all((1, 2, 3), lambda _: ListGroupsRequest(), ListGroupsResponse)
    assert {id: each.throttle_time_ms for id, each in answers.by_id.items()} == {1: 1, 3: 3}
    assert [each["broker"] for each in answers.missing] == [2]


async def test_node_without_question_is_not_asked() -> None:
    harness = cluster_of(1, 2)
    await harness.cluster.ask_all((1, 2), lambda id: ListGroupsRequest() if id == 2 else None, ListGroupsResponse)
    assert [node for node, _ in harness.nodes.asked] == [2]


async def test_any_broker_answers_and_the_own_one_first() -> None:
    harness = cluster_of(1, 2, 3, 4)
    harness.nodes.silent = {1, 2}
    assert (await harness.cluster.ask_any(ListGroupsRequest(), ListGroupsResponse)).throttle_time_ms == 3
    assert [node for node, _ in harness.nodes.asked] == [1, 2, 3]
    harness.nodes.silent = {1, 2, 3, 4}
    with pytest.raises(ConsoleError, match="No broker answers"):
        await harness.cluster.ask_any(ListGroupsRequest(), ListGroupsResponse)


async def test_unknown_node_has_no_address() -> None:
    with pytest.raises(PeerError, match="node 9 has no known address"):
        await cluster_of(1).cluster.ask(9, ListGroupsRequest(), ListGroupsResponse)


def test_fenced_brokers_are_not_live() -> None:
    assert cluster_of(1, 2, 3, fenced=(2,)).cluster.live_brokers == [1, 3]


async def test_submitted_request_carries_the_principal() -> None:
    harness = cluster_of(1)
    harness.own[DeleteTopicsRequest] = lambda _: DeleteTopicsResponse(responses=[DeletableTopicResult("t")])
    answer = await harness.cluster.submit(asked(), DeleteTopicsRequest(), DeleteTopicsResponse)
    assert [each.name for each in answer.responses] == ["t"]
    assert [principal for principal, _ in harness.submitted] == [ALICE]


async def test_nothing_is_submitted_before_clients_are_served() -> None:
    harness = cluster_of(1)
    harness.is_serving = False
    with pytest.raises(ConsoleError, match="does not serve clients yet") as refused:
        await harness.cluster.submit(asked(), DeleteTopicsRequest(), DeleteTopicsResponse)
    assert refused.value.status == HTTPStatus.SERVICE_UNAVAILABLE


def test_rights_are_those_of_the_authorizer_and_audited_for_own_requests() -> None:
    harness = ConsoleHarness(image_with(topics={"a": 1, "b": 1}), GrantedPermissions([READ_A]))
    cluster = harness.cluster
    cluster.require(asked(), READ_TOPIC, "a", "read a", ApiKey.FETCH)
    with pytest.raises(ConsoleError, match="User:alice is not authorized to read b") as refused:
        cluster.require(asked(), READ_TOPIC, "b", "read b", ApiKey.FETCH)
    assert refused.value.status == HTTPStatus.FORBIDDEN
    assert harness.audit.decisions == [(ALICE, ApiKey.FETCH, "a", True), (ALICE, ApiKey.FETCH, "b", False)]
    assert cluster.allowed(asked(), READ_TOPIC, ["a", "b"]) == ["a"]
    assert not cluster.allows(asked("User:mallory"), READ_TOPIC, "a")


def test_everything_is_allowed_without_authorizer() -> None:
    harness = cluster_of(1)
    harness.cluster.require(asked(), READ_TOPIC, "a", "read a", ApiKey.FETCH)
    assert harness.cluster.allowed(asked(), READ_TOPIC, ["a"]) == ["a"]
    assert harness.cluster.filters(asked(), READ_TOPIC, str) == []
    assert harness.audit.decisions == []


def test_kept_decisions_end_with_the_generation_of_the_acls() -> None:
    authorizer = GrantedPermissions([READ_A])
    cluster = ConsoleHarness(image_with(), authorizer).cluster

    def key(principal: str = ALICE) -> object:
        (found,) = cluster.filters(asked(principal), DESCRIBE_TOPIC, str)
        return found.key

    first = key()
    assert key() == first
    assert key("User:bob") != first
    authorizer.generation += 1
    assert key() != first


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, HTTPStatus.FORBIDDEN),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, HTTPStatus.NOT_FOUND),
        (ErrorCode.INVALID_PARTITIONS, HTTPStatus.CONFLICT),
    ],
)
def test_error_code_becomes_a_sentence(code: ErrorCode, status: HTTPStatus) -> None:
    with pytest.raises(ConsoleError, match=f"Topic: .* \\({code.name}\\)") as refused:
        check(code, None, "Topic")
    assert refused.value.status == status
    check(0, None, "Topic")
