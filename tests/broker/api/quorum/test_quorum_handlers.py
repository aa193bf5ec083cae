"""The quorum's APIs between wire and replica: decoded requests, encoded responses, refused partitions."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from broker.api.quorum.describe_quorum import DescribeQuorumHandler
from broker.api.quorum.quorum_requests import (
    ADD_RAFT_VOTER,
    BEGIN_QUORUM_EPOCH,
    END_QUORUM_EPOCH,
    FETCH_SNAPSHOT,
    RAFT_FETCH,
    REMOVE_RAFT_VOTER,
    UPDATE_RAFT_VOTER,
    VOTE,
    QuorumRequestHandler,
)
from broker.api.serving.quorum_peer import QuorumPeer
from broker.quorum import messages as core
from broker.quorum.description import QuorumDescription, QuorumNode, ReplicaStatus
from broker.quorum.identity import KRaftVersions, ListenerEndpoint
from broker.quorum.messages import LeaderHint, Request, Response
from broker.quorum.wire.outgoing import outgoing
from protocol.api_keys import API_BY_KEY, response_class
from protocol.compiler import decode, encode_bytes
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, LeaderEpoch, Offset
from protocol.messages import fetch as fetch_messages
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from protocol.primitives import ZERO_UUID, Uuid
from tests.broker.api.metadata_harness import context
from tests.support.quorum_values import (
    log_position,
    make_begin_request,
    make_end_request,
    make_fetch_request,
    make_fetch_response,
    make_fetch_snapshot_request,
    make_leader_hint,
    make_snapshot_id,
    make_update_voter_request,
    make_vote_request,
    replica_key,
)

DIRECTORY = Uuid(b"\x11" * 16)
LISTENER = "CONTROLLER"
LISTENERS = (ListenerEndpoint(LISTENER, "h", 9093),)
LEADER = make_leader_hint(3, 6, LISTENERS)
VOTE_REQUEST = make_vote_request(
    "cluster", 5, replica_key(1, DIRECTORY), replica_key(2, DIRECTORY), log_position(4, 99)
)


class ScriptedPeer:
    """A replica with a configured response that records its requests."""

    def __init__(self, response: Response | None = None, description: QuorumDescription | None = None) -> None:
        self.requests: list[Request] = []
        self.response = response
        self.description = description

    def handle(self, request: Request) -> Awaitable[Response]:
        self.requests.append(request)
        return self._answer()

    async def _answer(self) -> Response:
        assert self.response is not None
        return self.response

    def describe(self) -> QuorumDescription:
        assert self.description is not None
        return self.description


CASES: list[tuple[Any, Request, Response]] = [
    (VOTE, VOTE_REQUEST, core.VoteResponse(ErrorCode.NONE, LEADER, granted=True)),
    (
        BEGIN_QUORUM_EPOCH,
        make_begin_request("cluster", 1, 5, replica_key(2, DIRECTORY), LISTENERS),
        core.BeginQuorumEpochResponse(ErrorCode.NONE, LEADER),
    ),
    (
        END_QUORUM_EPOCH,
        make_end_request("cluster", 1, 5, (replica_key(2, DIRECTORY),), LISTENERS),
        core.EndQuorumEpochResponse(ErrorCode.NONE, LEADER),
    ),
    (
        RAFT_FETCH,
        make_fetch_request("cluster", replica_key(1, DIRECTORY), 5, 99, 4, 500, 1 << 20, 90),
        make_fetch_response(ErrorCode.NONE, LEADER, 90, 10, records=b"batches"),
    ),
    (
        FETCH_SNAPSHOT,
        make_fetch_snapshot_request("cluster", replica_key(1, DIRECTORY), 5, make_snapshot_id(1000, 4), 64, 4096),
        core.FetchSnapshotResponse(ErrorCode.NONE, LEADER, make_snapshot_id(1000, 4), 5_000, 64, data=b"page"),
    ),
    (
        ADD_RAFT_VOTER,
        core.AddVoterRequest("cluster", replica_key(4, DIRECTORY), LISTENERS, ack_when_committed=False),
        core.ChangeVotersResponse(ErrorCode.DUPLICATE_VOTER, LeaderHint(), "4 votes already"),
    ),
    (
        REMOVE_RAFT_VOTER,
        core.RemoveVoterRequest("cluster", replica_key(4, DIRECTORY)),
        core.ChangeVotersResponse(ErrorCode.VOTER_NOT_FOUND, LeaderHint(), "4 does not vote"),
    ),
    (
        UPDATE_RAFT_VOTER,
        make_update_voter_request("cluster", 5, replica_key(4, DIRECTORY), LISTENERS, KRaftVersions(0, 1)),
        core.ChangeVotersResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, LEADER),
    ),
]


@pytest.mark.parametrize(("api", "request_", "response"), CASES, ids=lambda value: type(value).__name__)
async def test_request_reaches_the_replica_and_its_response_comes_back(
    api: Any, request_: Request, response: Response
) -> None:
    out = outgoing(request_, 1_000)
    for version in range(out.lowest_version, API_BY_KEY[out.key].max_version + 1):
        peer = ScriptedPeer(response)
        message: Any = out.build(version)
        arrived, _ = decode(type(message), encode_bytes(message, version), version)
        answer = await QuorumRequestHandler(api, peer)(arrived, context(version, listener=LISTENER))
        returned, _ = decode(response_class(out.key), encode_bytes(answer, version), version)
        read: Any = out.read(returned, LISTENER)
        assert type(peer.requests[0]) is type(request_)
        assert read.error is response.error
        if version == API_BY_KEY[out.key].max_version:
            assert peer.requests == [request_]
            assert read == response


@pytest.mark.parametrize(("api", "request_", "_response"), CASES[:5], ids=lambda value: type(value).__name__)
async def test_request_for_another_partition_does_not_reach_the_replica(
    api: Any, request_: Request, _response: Response
) -> None:
    peer = ScriptedPeer()
    out = outgoing(request_, 1_000)
    version = API_BY_KEY[out.key].max_version
    message: Any = out.build(version)
    message.topics *= 2
    answer: Any = await QuorumRequestHandler(api, peer)(message, context(version, listener=LISTENER))
    assert (answer.error_code, peer.requests) == (ErrorCode.INVALID_REQUEST, [])


async def test_waiting_fetch_is_cancelled_with_its_connection() -> None:
    class Parking(ScriptedPeer):
        def handle(self, request: Request) -> Awaitable[Response]:
            self.parked: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
            return self.parked

    peer = Parking()
    message = outgoing(CASES[3][1], 0).build(18)
    assert isinstance(message, fetch_messages.FetchRequest)
    waiting = asyncio.ensure_future(QuorumRequestHandler(RAFT_FETCH, peer)(message, context(18)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert peer.parked.cancelled()


class TestDescribeQuorum:
    DESCRIPTION = QuorumDescription(
        ErrorCode.NONE,
        BrokerId(1),
        LeaderEpoch(5),
        Offset(90),
        (
            ReplicaStatus(replica_key(1, DIRECTORY), Offset(100), 7, 7),
            ReplicaStatus(replica_key(2, DIRECTORY), Offset(99), 6, 5),
        ),
        (ReplicaStatus(replica_key(9, DIRECTORY), Offset(90)),),
        (QuorumNode(BrokerId(1), LISTENERS),),
    )

    def ask(self, version: int, description: QuorumDescription, *, topic: str = "__cluster_metadata") -> Any:
        peer: QuorumPeer = ScriptedPeer(description=description)
        request = DescribeQuorumRequest(
            [DescribeQuorumRequestTopicData(topic, [DescribeQuorumRequestPartitionData(0)])]
        )
        answer = DescribeQuorumHandler(peer)(request, context(version))
        return decode(DescribeQuorumResponse, encode_bytes(answer, version), version)[0]

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_every_version_describes_the_quorum(self, version: int) -> None:
        answer = self.ask(version, self.DESCRIPTION)
        partition = answer.topics[0].partitions[0]
        assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (1, 5, 90)
        second = partition.current_voters[1]
        assert (second.replica_id, second.log_end_offset) == (2, 99)
        assert (second.last_fetch_timestamp, second.last_caught_up_timestamp) == ((6, 5) if version else (-1, -1))
        assert second.replica_directory_id == (DIRECTORY if version == 2 else ZERO_UUID)
        assert [each.replica_id for each in partition.observers] == [9]
        assert [node.listeners[0].port for node in answer.nodes] == ([9093] if version == 2 else [])

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_follower_answers_not_leader_in_the_partition(self, version: int) -> None:
        answer = self.ask(version, QuorumDescription(ErrorCode.NOT_LEADER_OR_FOLLOWER, BrokerId(2), LeaderEpoch(5)))
        partition = answer.topics[0].partitions[0]
        assert (answer.error_code, partition.error_code) == (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def test_other_partitions_are_unknown(self) -> None:
        answer = self.ask(2, self.DESCRIPTION, topic="other")
        assert answer.topics[0].topic_name == "other"
        assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
