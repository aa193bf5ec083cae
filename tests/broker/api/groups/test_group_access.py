"""Rights to groups, transactional ids and tokens: what handlers refuse, and that a refused request reaches no
coordinator.
"""

import asyncio
import inspect
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from broker.api.groups.consumer_group_describe import ConsumerGroupDescribeHandler
from broker.api.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatHandler
from broker.api.groups.delete_groups import DeleteGroupsHandler
from broker.api.groups.describe_groups import DescribeGroupsHandler
from broker.api.groups.find_coordinator import CoordinatorType, FindCoordinatorHandler
from broker.api.groups.heartbeat import HeartbeatHandler
from broker.api.groups.join_group import JoinGroupHandler
from broker.api.groups.leave_group import LeaveGroupHandler
from broker.api.groups.list_groups import ListGroupsHandler
from broker.api.groups.offset_commit import OffsetCommitHandler
from broker.api.groups.offset_delete import OffsetDeleteHandler
from broker.api.groups.offset_fetch import OffsetFetchHandler
from broker.api.groups.streams_group_describe import StreamsGroupDescribeHandler
from broker.api.groups.streams_group_heartbeat import StreamsGroupHeartbeatHandler
from broker.api.groups.sync_group import SyncGroupHandler
from broker.api.pipeline.permission import AclOperation, AclResourceType
from broker.api.security.create_delegation_token import CreateDelegationTokenHandler
from broker.api.serving.context import RequestContext
from broker.api.share.alter_share_group_offsets import AlterShareGroupOffsetsHandler
from broker.api.share.delete_share_group_offsets import DeleteShareGroupOffsetsHandler
from broker.api.share.describe_share_group_offsets import DescribeShareGroupOffsetsHandler
from broker.api.share.share_acknowledge import ShareAcknowledgeHandler
from broker.api.share.share_fetch import ShareFetchHandler
from broker.api.share.share_group_describe import ShareGroupDescribeHandler
from broker.api.share.share_group_heartbeat import ShareGroupHeartbeatHandler
from broker.api.transactions.add_offsets_to_txn import AddOffsetsToTxnHandler
from broker.api.transactions.add_partitions_to_txn import AddPartitionsToTxnHandler
from broker.api.transactions.describe_transactions import DescribeTransactionsHandler
from broker.api.transactions.end_txn import EndTxnHandler
from broker.api.transactions.init_producer_id import InitProducerIdHandler
from broker.api.transactions.list_transactions import ListTransactionsHandler
from broker.api.transactions.txn_offset_commit import TxnOffsetCommitHandler
from broker.build_form import COMPILED, build_form
from protocol.errors import ErrorCode, KafkaError
from protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_share_group_offsets,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_delegation_token,
    delete_groups,
    delete_share_group_offsets,
    describe_groups,
    describe_share_group_offsets,
    describe_transactions,
    end_txn,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_transactions,
    offset_commit,
    offset_delete,
    offset_fetch,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    sync_group,
    txn_offset_commit,
)
from tests.broker.api.metadata_harness import context as plain_context
from tests.support.fakes.fake_authorizer import Grant, GrantedPermissions

ALICE = "User:alice"
GROUP, TXN, TOPIC = AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID, AclResourceType.TOPIC
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
GROUP_DENIED, TXN_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
TOPIC_DENIED, CLUSTER_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED


NO_DOUBLES = pytest.mark.skipif(build_form() == COMPILED, reason="compiled handlers take no double of a coordinator")


class Describes:
    """Answers descriptions of no groups, and fails on every other call."""

    fetch_offsets: None = None

    async def describe(self, group_ids: list[str]) -> list[Any]:
        assert group_ids == []
        return []

    async def describe_groups(self, group_ids: list[str], _version: int) -> list[Any]:
        assert group_ids == []
        return []


def context(version: int, *granted: Grant) -> RequestContext:
    found = plain_context(api_version=version)
    found.authorizer = GrantedPermissions(granted)
    found.connection.principal = ALICE
    return found


def answer(handler: Any, request: Any, circumstances: RequestContext) -> Any:
    """Return the response, or the code of the refusal of the whole request."""

    async def run() -> Any:
        result = handler(request, circumstances)
        return await result if inspect.isawaitable(result) else result

    try:
        return asyncio.run(run())
    except KafkaError as error:
        return error.code


def codes(response: Any) -> set[int]:
    """Return all error codes of a response except NONE."""
    if isinstance(response, ErrorCode):
        return {response}
    found: set[int] = set()
    for name in type(response).__dataclass_fields__:
        value = getattr(response, name)
        if name in ("error_code", "partition_error_code"):
            found.add(value)
        elif isinstance(value, list):
            found.update(*(codes(each) for each in value if hasattr(each, "__dataclass_fields__")))
    return found - {ErrorCode.NONE}


def no_image() -> Any:
    raise AssertionError("a refused request reads no metadata")


REFUSED: list[tuple[Any, Any, int, ErrorCode]] = [
    (JoinGroupHandler, join_group.JoinGroupRequest("g"), 9, GROUP_DENIED),
    (SyncGroupHandler, sync_group.SyncGroupRequest("g", protocol_type="c", protocol_name="r"), 5, GROUP_DENIED),
    (HeartbeatHandler, heartbeat.HeartbeatRequest("g"), 4, GROUP_DENIED),
    (LeaveGroupHandler, leave_group.LeaveGroupRequest("g"), 5, GROUP_DENIED),
    (lambda groups: OffsetCommitHandler(groups, no_image), offset_commit.OffsetCommitRequest("g"), 9, GROUP_DENIED),
    (lambda groups: OffsetDeleteHandler(groups, no_image), offset_delete.OffsetDeleteRequest("g"), 0, GROUP_DENIED),
    (
        lambda groups: OffsetFetchHandler(groups, no_image),
        offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup("g")]),
        9,
        GROUP_DENIED,
    ),
    (lambda groups: OffsetFetchHandler(groups, no_image), offset_fetch.OffsetFetchRequest("g"), 7, GROUP_DENIED),
    (
        lambda groups: TxnOffsetCommitHandler(groups, no_image),
        txn_offset_commit.TxnOffsetCommitRequest("t", "g"),
        5,
        TXN_DENIED,
    ),
    (DescribeGroupsHandler, describe_groups.DescribeGroupsRequest(["g"]), 6, GROUP_DENIED),
    (lambda groups: DeleteGroupsHandler(groups, groups), delete_groups.DeleteGroupsRequest(["g"]), 2, GROUP_DENIED),
    (ConsumerGroupHeartbeatHandler, consumer_group_heartbeat.ConsumerGroupHeartbeatRequest("g"), 1, GROUP_DENIED),
    (ConsumerGroupDescribeHandler, consumer_group_describe.ConsumerGroupDescribeRequest(["g"]), 1, GROUP_DENIED),
    (ShareGroupHeartbeatHandler, share_group_heartbeat.ShareGroupHeartbeatRequest("g"), 1, GROUP_DENIED),
    (ShareGroupDescribeHandler, share_group_describe.ShareGroupDescribeRequest(["g"]), 1, GROUP_DENIED),
    (
        lambda groups: StreamsGroupHeartbeatHandler(groups, groups),
        streams_group_heartbeat.StreamsGroupHeartbeatRequest("g"),
        0,
        GROUP_DENIED,
    ),
    (StreamsGroupDescribeHandler, streams_group_describe.StreamsGroupDescribeRequest(["g"]), 0, GROUP_DENIED),
    (
        lambda shares: ShareFetchHandler(shares, 1, lambda: True),
        share_fetch.ShareFetchRequest("g", "m"),
        2,
        GROUP_DENIED,
    ),
    (
        lambda shares: ShareAcknowledgeHandler(shares, lambda: True),
        share_acknowledge.ShareAcknowledgeRequest("g", "m"),
        2,
        GROUP_DENIED,
    ),
    (
        AlterShareGroupOffsetsHandler,
        alter_share_group_offsets.AlterShareGroupOffsetsRequest("g"),
        0,
        GROUP_DENIED,
    ),
    (
        DeleteShareGroupOffsetsHandler,
        delete_share_group_offsets.DeleteShareGroupOffsetsRequest("g"),
        0,
        GROUP_DENIED,
    ),
    (
        DescribeShareGroupOffsetsHandler,
        describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
            [describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup("g")]
        ),
        1,
        GROUP_DENIED,
    ),
    (
        lambda ids: InitProducerIdHandler(ids, ids),
        init_producer_id.InitProducerIdRequest("t", producer_id=-1, producer_epoch=-1),
        5,
        TXN_DENIED,
    ),
    (
        lambda ids: InitProducerIdHandler(ids, ids),
        init_producer_id.InitProducerIdRequest(None, producer_id=-1, producer_epoch=-1),
        5,
        CLUSTER_DENIED,
    ),
    (
        lambda transactions: AddPartitionsToTxnHandler(transactions, no_image),
        add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic("any", [0])],
        ),
        3,
        TXN_DENIED,
    ),
    (
        lambda transactions: AddPartitionsToTxnHandler(transactions, no_image),
        add_partitions_to_txn.AddPartitionsToTxnRequest(),
        5,
        CLUSTER_DENIED,
    ),
    (
        lambda transactions: AddOffsetsToTxnHandler(transactions, lambda: 50),
        add_offsets_to_txn.AddOffsetsToTxnRequest("t"),
        4,
        TXN_DENIED,
    ),
    (EndTxnHandler, end_txn.EndTxnRequest("t"), 5, TXN_DENIED),
    (DescribeTransactionsHandler, describe_transactions.DescribeTransactionsRequest(["t"]), 0, TXN_DENIED),
    (
        CreateDelegationTokenHandler,
        create_delegation_token.CreateDelegationTokenRequest("User", "bob"),
        3,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ),
]


@NO_DOUBLES
@pytest.mark.parametrize(
    ("handler", "request_", "version", "code"),
    [pytest.param(*row, id=f"{type(row[1]).__name__}-{row[2]}-{row[3].name}") for row in REFUSED],
)
def test_request_without_the_right_is_refused(handler: Any, request_: Any, version: int, code: ErrorCode) -> None:
    assert codes(answer(handler(Describes()), request_, context(version))) == {code}


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (CoordinatorType.GROUP, GROUP_DENIED),
        (CoordinatorType.TRANSACTION, TXN_DENIED),
        (CoordinatorType.SHARE, CLUSTER_DENIED),
    ],
)
def test_coordinator_is_found_with_the_right_to_its_key(kind: CoordinatorType, code: ErrorCode) -> None:
    handler = FindCoordinatorHandler(no_image, {}, lambda _name: None)
    request = find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=["k"])
    assert codes(answer(handler, request, context(6))) == {code}


@NO_DOUBLES
def test_offsets_need_the_right_to_each_topic() -> None:
    granted = [(ALICE, READ, GROUP, "g"), (ALICE, WRITE, TXN, "t"), (ALICE, DESCRIBE, GROUP, "g")]
    topic = SimpleNamespace(name="any", partition=lambda _index: object())
    image = SimpleNamespace(topics=SimpleNamespace(by_name=lambda _name: topic))
    commit = offset_commit.OffsetCommitRequest(
        "g",
        topics=[
            offset_commit.OffsetCommitRequestTopic("denied", partitions=[offset_commit.OffsetCommitRequestPartition(0)])
        ],
    )
    assert codes(answer(OffsetCommitHandler(Describes(), lambda: image), commit, context(9, *granted))) == {  # type: ignore[arg-type, return-value]
        TOPIC_DENIED
    }


@NO_DOUBLES
@pytest.mark.parametrize(
    ("handler", "request_", "version"),
    [
        (
            ConsumerGroupHeartbeatHandler,
            consumer_group_heartbeat.ConsumerGroupHeartbeatRequest("g", subscribed_topic_names=["denied"]),
            1,
        ),
        (
            ShareGroupHeartbeatHandler,
            share_group_heartbeat.ShareGroupHeartbeatRequest("g", subscribed_topic_names=["denied"]),
            1,
        ),
    ],
)
def test_members_subscribe_to_topics_that_they_may_describe(handler: Any, request_: Any, version: int) -> None:
    granted = context(version, (ALICE, READ, GROUP, "g"))
    assert codes(answer(handler(Describes()), request_, granted)) == {TOPIC_DENIED}


def test_lists_show_what_the_principal_may_describe() -> None:
    class Groups:
        async def list_groups(self, _states: object, _types: object) -> list_groups.ListGroupsResponse:
            return list_groups.ListGroupsResponse(groups=[list_groups.ListedGroup(name) for name in ("g", "hidden")])

    class Transactions:
        async def list(self, _wanted: object, _view: object) -> list[Any]:
            return [list_transactions.TransactionState(name) for name in ("t", "hidden")]

    groups = answer(
        ListGroupsHandler(Groups()),  # type: ignore[arg-type]
        list_groups.ListGroupsRequest(),
        context(5, (ALICE, DESCRIBE, GROUP, "g")),
    )
    assert [each.group_id for each in groups.groups] == ["g"]
    found = answer(
        ListTransactionsHandler(Transactions()),  # type: ignore[arg-type]
        list_transactions.ListTransactionsRequest(),
        context(2, (ALICE, DESCRIBE, TXN, "t")),
    )
    assert [each.transactional_id for each in found.transaction_states] == ["t"]


def test_descriptions_hide_groups_with_topics_that_the_principal_may_not_describe() -> None:
    group = consumer_group_describe.DescribedGroup(group_id="g", group_state="Stable")
    topics = [consumer_group_describe.TopicPartitions(topic_name="denied", partitions=[0])]
    assignment = consumer_group_describe.Assignment(topic_partitions=topics)
    group.members = [consumer_group_describe.Member(member_id="m", assignment=assignment)]

    class Groups:
        async def describe(self, _group_ids: list[str]) -> list[Any]:
            return [replace(group)]

    request = consumer_group_describe.ConsumerGroupDescribeRequest(["g"])
    granted: list[Grant] = [(ALICE, DESCRIBE, GROUP, "g")]
    hidden = answer(ConsumerGroupDescribeHandler(Groups()), request, context(1, *granted))  # type: ignore[arg-type]
    assert (codes(hidden), hidden.groups[0].members) == ({TOPIC_DENIED}, [])
    granted.append((ALICE, DESCRIBE, TOPIC, "denied"))
    shown = answer(ConsumerGroupDescribeHandler(Groups()), request, context(1, *granted))  # type: ignore[arg-type]
    assert [member.member_id for member in shown.groups[0].members] == ["m"]


def test_idempotent_producer_needs_the_right_to_write_to_some_topic() -> None:
    class Ids:
        async def next_id(self) -> int:
            return 7

    request = init_producer_id.InitProducerIdRequest(None, producer_id=-1, producer_epoch=-1)
    handler = InitProducerIdHandler(Ids(), Ids())  # type: ignore[arg-type]
    assert answer(handler, request, context(5, (ALICE, WRITE, TOPIC, "any"))).producer_id == 7


def test_partial_rights_leave_the_other_partitions_out_of_a_transaction() -> None:
    topic = SimpleNamespace(partition=lambda _index: object())
    image = SimpleNamespace(topics=SimpleNamespace(by_name=lambda _name: topic))
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name, [0]) for name in ("mine", "denied")],
    )
    granted = context(3, (ALICE, WRITE, TXN, "t"), (ALICE, WRITE, TOPIC, "mine"))
    handler = AddPartitionsToTxnHandler(Describes(), lambda: image)  # type: ignore[arg-type, return-value]
    results = {
        each.name: each.results_by_partition[0].partition_error_code
        for each in answer(handler, request, granted).results_by_topic_v3_and_below
    }
    assert results == {"mine": ErrorCode.OPERATION_NOT_ATTEMPTED, "denied": TOPIC_DENIED}
