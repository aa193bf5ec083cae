"""Encoding of the quorum's messages: bytes of Apache Kafka 4.2, and round trips in every version."""

from dataclasses import replace
from typing import Any

import pytest

from broker.quorum import messages as core
from broker.quorum.identity import KRaftVersions, ListenerEndpoint
from broker.quorum.messages import ANY_HIGH_WATERMARK, LeaderHint
from broker.quorum.wire import elections, membership, replication
from broker.quorum.wire.outgoing import outgoing
from broker.quorum.wire.shape import MalformedResponse, WrongPartition
from protocol.api_keys import API_BY_KEY, ApiKey, request_class, response_class
from protocol.compiler import decode, encode_bytes
from protocol.errors import ErrorCode
from protocol.messages import Message, api_versions
from protocol.messages import fetch as fetch_messages
from protocol.messages import fetch_snapshot as snapshot_messages
from protocol.messages import vote as vote_messages
from protocol.primitives import METADATA_TOPIC_ID, Uuid
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

DIRECTORY_1, DIRECTORY_2 = Uuid(b"\x11" * 16), Uuid(b"\x22" * 16)
LISTENER = "C"
LISTENERS = (ListenerEndpoint(LISTENER, "h", 9093),)
LEADER = make_leader_hint(3, 6, LISTENERS)

VOTE = make_vote_request("cluster", 5, replica_key(1, DIRECTORY_1), replica_key(2, DIRECTORY_2), log_position(4, 99))
BEGIN = make_begin_request("cluster", 1, 5, replica_key(2, DIRECTORY_2), LISTENERS)
END = make_end_request("cluster", 1, 5, (replica_key(2, DIRECTORY_2), replica_key(3, DIRECTORY_1)), LISTENERS)
FETCH = make_fetch_request("cluster", replica_key(1, DIRECTORY_1), 5, 99, 4, 500, 8 << 20, 90)
PAGE = make_fetch_snapshot_request("cluster", replica_key(1, DIRECTORY_1), 5, make_snapshot_id(1000, 4), 64, 4096)
ADD = core.AddVoterRequest("cluster", replica_key(4, DIRECTORY_1), LISTENERS)
REMOVE = core.RemoveVoterRequest("cluster", replica_key(4, DIRECTORY_1))
UPDATE = make_update_voter_request("cluster", 5, replica_key(4, DIRECTORY_1), LISTENERS, KRaftVersions(0, 1))

# Written by Apache Kafka 4.2's message classes: (name, version, bytes).
GOLDEN = [
    ("add", 0, "08636c7573746572000075300000000411111111111111111111111111111111020243026823850000"),
    ("add", 1, "08636c757374657200007530000000041111111111111111111111111111111102024302682385000000"),
    (
        "begin",
        0,
        "0007636c75737465720000000100125f5f636c75737465725f6d6574616461746100000001000000000000000100000005",
    ),
    (
        "begin",
        1,
        "08636c75737465720000000202135f5f636c75737465725f6d65746164617461020000000022222222222222"
        "22222222222222222200000001000000050000020243026823850000",
    ),
    (
        "end",
        0,
        "0007636c75737465720000000100125f5f636c75737465725f6d657461646174610000000100000000000000"
        "0100000005000000020000000200000003",
    ),
    (
        "end",
        1,
        "08636c757374657202135f5f636c75737465725f6d6574616461746102000000000000000100000005030000"
        "0002222222222222222222222222222222220000000003111111111111111111111111111111110000000202"
        "43026823850000",
    ),
    (
        "fetch",
        12,
        "00000001000001f400000000008000000000000000ffffffff02135f5f636c75737465725f6d657461646174"
        "61020000000000000005000000000000006300000004ffffffffffffffff000000000000010101000808636c"
        "7573746572",
    ),
    (
        "fetch",
        13,
        "00000001000001f400000000008000000000000000ffffffff02000000000000000000000000000000010200"
        "00000000000005000000000000006300000004ffffffffffffffff000000000000010101000808636c757374"
        "6572",
    ),
    (
        "fetch",
        14,
        "00000001000001f400000000008000000000000000ffffffff02000000000000000000000000000000010200"
        "00000000000005000000000000006300000004ffffffffffffffff000000000000010101000808636c757374"
        "6572",
    ),
    (
        "fetch",
        15,
        "000001f400000000008000000000000000ffffffff0200000000000000000000000000000001020000000000"
        "000005000000000000006300000004ffffffffffffffff000000000000010102000808636c7573746572010d"
        "00000001ffffffffffffffff00",
    ),
    (
        "fetch",
        16,
        "000001f400000000008000000000000000ffffffff0200000000000000000000000000000001020000000000"
        "000005000000000000006300000004ffffffffffffffff000000000000010102000808636c7573746572010d"
        "00000001ffffffffffffffff00",
    ),
    (
        "fetch",
        17,
        "000001f400000000008000000000000000ffffffff0200000000000000000000000000000001020000000000"
        "000005000000000000006300000004ffffffffffffffff000000000100101111111111111111111111111111"
        "111100010102000808636c7573746572010d00000001ffffffffffffffff00",
    ),
    (
        "fetch",
        18,
        "000001f400000000008000000000000000ffffffff0200000000000000000000000000000001020000000000"
        "000005000000000000006300000004ffffffffffffffff000000000200101111111111111111111111111111"
        "11110108000000000000005a00010102000808636c7573746572010d00000001ffffffffffffffff00",
    ),
    (
        "fetch_response",
        18,
        "00000000000000000000020000000000000000000000000000000102000000000000000000000000005affff"
        "ffffffffffff000000000000000a01ffffffff0102000d000000040000000000000050000109000000030000"
        "0006000001000d02000000030268000023850000",
    ),
    (
        "fetch_snapshot",
        0,
        "000000010000100002135f5f636c75737465725f6d6574616461746102000000000000000500000000000003"
        "e800000004000000000000000040000001000808636c7573746572",
    ),
    (
        "fetch_snapshot",
        1,
        "000000010000100002135f5f636c75737465725f6d6574616461746102000000000000000500000000000003"
        "e800000004000000000000000040010010111111111111111111111111111111110001000808636c75737465"
        "72",
    ),
    ("remove", 0, "08636c7573746572000000041111111111111111111111111111111100"),
    (
        "update",
        0,
        "08636c75737465720000000500000004111111111111111111111111111111110202430268238500000000010000",
    ),
    ("update_response", 0, "00000000000601000f000000030000000602680000238500"),
    (
        "vote",
        0,
        "08636c757374657202135f5f636c75737465725f6d6574616461746102000000000000000500000001000000"
        "040000000000000063000000",
    ),
    (
        "vote",
        1,
        "08636c75737465720000000202135f5f636c75737465725f6d65746164617461020000000000000005000000"
        "0111111111111111111111111111111111222222222222222222222222222222220000000400000000000000"
        "63000000",
    ),
    (
        "vote",
        2,
        "08636c75737465720000000202135f5f636c75737465725f6d65746164617461020000000000000005000000"
        "0111111111111111111111111111111111222222222222222222222222222222220000000400000000000000"
        "6301000000",
    ),
    ("vote_response", 0, "000002135f5f636c75737465725f6d657461646174610200000000004a000000030000000600000000"),
    (
        "vote_response",
        1,
        "000002135f5f636c75737465725f6d657461646174610200000000004a000000030000000600000001000a02000000030268238500",
    ),
    (
        "vote_response",
        2,
        "000002135f5f636c75737465725f6d657461646174610200000000004a000000030000000600000001000a02000000030268238500",
    ),
]

REQUESTS: dict[str, tuple[ApiKey, core.Request]] = {
    "vote": (ApiKey.VOTE, VOTE),
    "begin": (ApiKey.BEGIN_QUORUM_EPOCH, BEGIN),
    "end": (ApiKey.END_QUORUM_EPOCH, END),
    "fetch": (ApiKey.FETCH, FETCH),
    "fetch_snapshot": (ApiKey.FETCH_SNAPSHOT, PAGE),
    "add": (ApiKey.ADD_RAFT_VOTER, ADD),
    "remove": (ApiKey.REMOVE_RAFT_VOTER, REMOVE),
    "update": (ApiKey.UPDATE_RAFT_VOTER, UPDATE),
}
RESPONSES: dict[str, tuple[ApiKey, Message]] = {
    "vote_response": (
        ApiKey.VOTE,
        elections.encode_vote_response(core.VoteResponse(ErrorCode.FENCED_LEADER_EPOCH, LEADER), LISTENER),
    ),
    "fetch_response": (
        ApiKey.FETCH,
        replication.encode_fetch_response(
            make_fetch_response(ErrorCode.NONE, LEADER, 90, 10, log_position(4, 80)), LISTENER
        ),
    ),
    "update_response": (
        ApiKey.UPDATE_RAFT_VOTER,
        membership.encode_update_response(
            core.ChangeVotersResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, LEADER), LISTENER
        ),
    ),
}


def golden_request(name: str, version: int) -> core.Request:
    """Encode a request for one version."""
    request = REQUESTS[name][1]
    if isinstance(request, core.VoteRequest):
        return replace(request, pre_vote=version >= 2)
    if isinstance(request, core.AddVoterRequest):
        return replace(request, ack_when_committed=version == 0)
    return request


def as_old(request: core.Request, version: int) -> core.Request:
    """Return the request without the fields that the version lacks."""
    match request:
        case core.VoteRequest() if version < 1:
            return replace(request, candidate=replica_key(1), voter=None)
        case core.BeginQuorumEpochRequest() if version < 1:
            return replace(request, voter=None, listeners=())
        case core.EndQuorumEpochRequest() if version < 1:
            return replace(request, successors=(replica_key(2), replica_key(3)), listeners=())
        case core.FetchRequest() if version < 17:
            return replace(request, replica=replica_key(1), high_watermark=ANY_HIGH_WATERMARK)
        case core.FetchRequest() if version < 18:
            return replace(request, high_watermark=ANY_HIGH_WATERMARK)
        case core.FetchSnapshotRequest() if version < 1:
            return replace(request, replica=replica_key(1))
    return request


def read_request(name: str, message: Any, version: int) -> core.Request:
    if name == "fetch":
        return replication.decode_fetch(message, version)
    readers = {
        "vote": elections.decode_vote,
        "begin": elections.decode_begin,
        "end": elections.decode_end,
        "fetch_snapshot": replication.decode_fetch_snapshot,
        "add": membership.decode_add,
        "remove": membership.decode_remove,
        "update": membership.decode_update,
    }
    reader: Any = readers[name]
    request: core.Request = reader(message)
    return request


def through(message: Any, version: int) -> Any:
    """Return a message as decoded from bytes."""
    return decode(type(message), encode_bytes(message, version), version)[0]


@pytest.mark.parametrize(("name", "version", "expected"), GOLDEN, ids=lambda value: str(value)[:16])
def test_encoding_equals_kafkas_bytes(name: str, version: int, expected: str) -> None:
    if name in RESPONSES:
        key, message = RESPONSES[name]
        assert encode_bytes(message, version).hex() == expected
        assert decode(response_class(key), bytes.fromhex(expected), version)[1] == len(expected) // 2
        return
    key, _ = REQUESTS[name]
    request = golden_request(name, version)
    out = outgoing(request, 30_000)
    assert out.key is key
    assert encode_bytes(out.build(version), version).hex() == expected
    message, _ = decode(request_class(key), bytes.fromhex(expected), version)
    assert read_request(name, message, version) == as_old(request, version)


def test_golden_bytes_cover_every_supported_version() -> None:
    for name, (key, _) in REQUESTS.items():
        lowest = replication.FETCH_FROM if key is ApiKey.FETCH else 0
        versions = [version for what, version, _ in GOLDEN if what == name]
        assert versions == list(range(lowest, API_BY_KEY[key].max_version + 1)), name


@pytest.mark.parametrize(
    ("request_", "lowest"),
    [
        (VOTE, 0),
        (replace(VOTE, pre_vote=True), 2),
        (FETCH, 12),
        (ADD, 0),
        (replace(ADD, ack_when_committed=False), 1),
        (core.ProbeRequest(), 0),
    ],
)
def test_requests_exclude_versions_without_their_fields(request_: core.Request, lowest: int) -> None:
    assert outgoing(request_, 1_000).lowest_version == lowest


RESPONSE_PAIRS: list[tuple[core.Request, core.Response, Any, int]] = [
    (VOTE, core.VoteResponse(ErrorCode.NONE, LEADER, granted=True), elections.encode_vote_response, 1),
    (BEGIN, core.BeginQuorumEpochResponse(ErrorCode.NONE, LEADER), elections.encode_begin_response, 1),
    (END, core.EndQuorumEpochResponse(ErrorCode.FENCED_LEADER_EPOCH, LEADER), elections.encode_end_response, 1),
    (
        FETCH,
        make_fetch_response(ErrorCode.NONE, LEADER, 90, 10, records=b"batches"),
        replication.encode_fetch_response,
        16,
    ),
    (
        FETCH,
        make_fetch_response(ErrorCode.NONE, LEADER, 90, 10, snapshot_id=make_snapshot_id(70, 2)),
        replication.encode_fetch_response,
        16,
    ),
    (
        FETCH,
        make_fetch_response(ErrorCode.NONE, LEADER, diverging=log_position(0, 7)),
        replication.encode_fetch_response,
        16,
    ),
    (
        PAGE,
        core.FetchSnapshotResponse(ErrorCode.NONE, LEADER, make_snapshot_id(1000, 4), 5_000, 64, data=b"page"),
        replication.encode_fetch_snapshot_response,
        1,
    ),
    (UPDATE, core.ChangeVotersResponse(ErrorCode.NONE, LEADER), membership.encode_update_response, 0),
]


@pytest.mark.parametrize(("request_", "response", "encode", "addresses_from"), RESPONSE_PAIRS)
def test_responses_round_trip_in_every_version(
    request_: core.Request, response: Any, encode: Any, addresses_from: int
) -> None:
    out = outgoing(request_, 1_000)
    for version in range(out.lowest_version, API_BY_KEY[out.key].max_version + 1):
        leader = LEADER if version >= addresses_from else make_leader_hint(3, 6)
        read = out.read(through(encode(response, LISTENER), version), LISTENER)
        assert read == replace(response, leader=leader)


@pytest.mark.parametrize(("request_", "response", "encode", "_from"), RESPONSE_PAIRS)
def test_leader_address_is_that_of_the_requested_listener(
    request_: core.Request, response: Any, encode: Any, _from: int
) -> None:
    two = make_leader_hint(3, 6, (ListenerEndpoint("OTHER", "o", 1), *LISTENERS))
    out = outgoing(request_, 1_000)
    version = API_BY_KEY[out.key].max_version
    for listener, found in (("C", ("h", 9093)), ("OTHER", ("o", 1)), ("NONE", None)):
        read: Any = out.read(through(encode(replace(response, leader=two), listener), version), "REQUESTED")
        assert [each.endpoint for each in read.leader.listeners] == ([] if found is None else [found])
        assert all(each.name == "REQUESTED" for each in read.leader.listeners)


@pytest.mark.parametrize(("request_", "response", "encode", "_from"), RESPONSE_PAIRS[:-1])
def test_wrong_cluster_is_a_top_level_error_and_others_are_partition_errors(
    request_: core.Request, response: Any, encode: Any, _from: int
) -> None:
    whole = encode(replace(response, error=ErrorCode.INCONSISTENT_CLUSTER_ID), LISTENER)
    assert whole.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    part = encode(replace(response, error=ErrorCode.UNKNOWN_LEADER_EPOCH), LISTENER)
    topics = part.responses if isinstance(part, fetch_messages.FetchResponse) else part.topics
    assert (part.error_code, topics[0].partitions[0].error_code) == (0, ErrorCode.UNKNOWN_LEADER_EPOCH)
    read: Any = outgoing(request_, 1_000).read(whole, LISTENER)
    assert (read.error, read.leader) == (ErrorCode.INCONSISTENT_CLUSTER_ID, LeaderHint())


def test_response_without_the_partition_is_malformed() -> None:
    for request, *_ in RESPONSE_PAIRS[:-1]:
        out = outgoing(request, 1_000)
        with pytest.raises(MalformedResponse):
            out.read(response_class(out.key)(), LISTENER)


def test_unknown_error_code_becomes_unknown_server_error() -> None:
    response = vote_messages.VoteResponse(error_code=30_000)
    assert elections.decode_vote_response(response, LISTENER).error is ErrorCode.UNKNOWN_SERVER_ERROR


class TestOtherPartitions:
    def test_election_requests_for_another_partition_are_refused(self) -> None:
        for name in ("vote", "begin", "end"):
            good: Any = outgoing(REQUESTS[name][1], 0).build(1)
            for spoil in ("topics", "partitions", "index", "name", "twice"):
                message: Any = through(good, 1)
                match spoil:
                    case "topics":
                        message.topics = []
                    case "partitions":
                        message.topics[0].partitions = []
                    case "index":
                        message.topics[0].partitions[0].partition_index = 1
                    case "name":
                        message.topics[0].topic_name = "other"
                    case "twice":
                        message.topics *= 2
                with pytest.raises(WrongPartition) as refused:
                    read_request(name, message, 1)
                answer: Any = refused.value.response
                assert (answer.error_code, answer.topics) == (ErrorCode.INVALID_REQUEST, [])

    @pytest.mark.parametrize(("version", "by_id"), [(12, False), (13, True), (18, True)])
    def test_fetch_names_the_topic_by_name_or_id_per_version(self, version: int, by_id: bool) -> None:
        for topic, topic_id, good in (
            ("__cluster_metadata", METADATA_TOPIC_ID, True),
            ("", METADATA_TOPIC_ID, by_id),
            ("__cluster_metadata", DIRECTORY_1, not by_id),
        ):
            message: Any = outgoing(FETCH, 0).build(version)
            message.topics[0].topic, message.topics[0].topic_id = topic, topic_id
            if good:
                assert replication.decode_fetch(message, version).fetch_offset == 99
            else:
                with pytest.raises(WrongPartition) as refused:
                    replication.decode_fetch(message, version)
                assert refused.value.response == fetch_messages.FetchResponse(error_code=ErrorCode.INVALID_REQUEST)

    def test_fetch_snapshot_answers_each_partition(self) -> None:
        """Only the metadata log has snapshots, so no bytes are shared with other partitions (KIP-630)."""
        message: Any = outgoing(PAGE, 0).build(1)
        (mine,) = message.topics[0].partitions
        foreign = replace(mine, partition=7)
        message.topics = [
            snapshot_messages.FetchSnapshotRequestTopicSnapshot("orders", [mine]),
            snapshot_messages.FetchSnapshotRequestTopicSnapshot("__cluster_metadata", [foreign, mine]),
        ]
        request = replication.decode_fetch_snapshot(message)
        page = core.FetchSnapshotResponse(ErrorCode.NONE, LEADER, request.snapshot_id, 500, 64, data=b"page")
        response = replication.answer_other_partitions(
            message, replication.encode_fetch_snapshot_response(page, "CONTROLLER")
        )
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [
            (topic.name, each.index, each.error_code, bytes(each.unaligned_records or b""))
            for topic in response.topics
            for each in topic.partitions
        ] == [
            ("orders", 0, unknown, b""),
            ("__cluster_metadata", 7, unknown, b""),
            ("__cluster_metadata", 0, ErrorCode.NONE, b"page"),
        ]

    def test_fetch_snapshot_refuses_unknown_partitions_and_repeated_ones(self) -> None:
        message: Any = outgoing(PAGE, 0).build(1)
        message.topics[0].partitions[0].partition = 7
        with pytest.raises(WrongPartition) as refused:
            replication.decode_fetch_snapshot(message)
        answer: Any = refused.value.response
        assert answer.error_code == 0
        entry = answer.topics[0].partitions[0]
        assert (entry.index, entry.error_code) == (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        message.topics[0].partitions[0].partition = 0
        message.topics[0].partitions *= 2
        with pytest.raises(WrongPartition) as refused:
            replication.decode_fetch_snapshot(message)
        expected = snapshot_messages.FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
        assert refused.value.response == expected


class TestMembership:
    def test_failed_voter_change_has_a_message(self) -> None:
        response = core.ChangeVotersResponse(ErrorCode.DUPLICATE_VOTER, LeaderHint(), "4 votes already")
        for request, encode in ((ADD, membership.encode_add_response), (REMOVE, membership.encode_remove_response)):
            out = outgoing(request, 1_000)
            encoded: Message = encode(response)
            assert out.read(through(encoded, 0), LISTENER) == response

    def test_error_without_a_message_gets_the_error_codes_message(self) -> None:
        response = core.ChangeVotersResponse(ErrorCode.DUPLICATE_VOTER, LEADER)
        assert membership.encode_add_response(response).error_message == ErrorCode.DUPLICATE_VOTER.message
        assert membership.encode_add_response(replace(response, error=ErrorCode.NONE)).error_message is None

    def test_probe_reads_the_supported_kraft_versions(self) -> None:
        feature = api_versions.SupportedFeatureKey("kraft.version", 0, 1)
        read = outgoing(core.ProbeRequest(), 1_000).read
        found = read(api_versions.ApiVersionsResponse(supported_features=[feature]), LISTENER)
        assert found == core.ProbeResponse(ErrorCode.NONE, KRaftVersions(0, 1))
        assert read(api_versions.ApiVersionsResponse(), LISTENER) == core.ProbeResponse(ErrorCode.NONE)
