"""Requests of share groups: heartbeats, share fetches, acknowledgements, start offsets, and states at the coordinator.

Share partitions are initialized in the background, so a scenario waits for them. Records of one batch are acquired
together, so that both brokers hand out the same ranges.
"""

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

from protocol.api_keys import ApiKey
from protocol.messages import Message
from protocol.messages import alter_share_group_offsets as al
from protocol.messages import delete_groups as dg
from protocol.messages import delete_share_group_offsets as de
from protocol.messages import delete_share_group_state as sdel
from protocol.messages import describe_share_group_offsets as do
from protocol.messages import incremental_alter_configs as ia
from protocol.messages import initialize_share_group_state as sini
from protocol.messages import join_group as jg
from protocol.messages import list_groups as lg
from protocol.messages import offset_commit as oc
from protocol.messages import produce as pr
from protocol.messages import read_share_group_state as srea
from protocol.messages import read_share_group_state_summary as ssum
from protocol.messages import share_acknowledge as sa
from protocol.messages import share_fetch as sf
from protocol.messages import share_group_describe as sd
from protocol.messages import share_group_heartbeat as sh
from protocol.messages import write_share_group_state as swri
from protocol.primitives import Uuid
from protocol.records.builder import Record, build_batch
from tests.interop.wire.harness import TIMEOUT_S, WireHarness

Scenario = Generator[tuple[str, Message], Message | None, None]
Acknowledgement = tuple[int, int, list[int]]

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
WAIT_MS = 20_000
M, N = "EhbWOnr1SWu-SSzk8wz7wg", "hT9rQfYKSzSNTGnh2uSvGw"
UNKNOWN_ID = Uuid(bytes(15) + b"\x77")
_GROUP_RESOURCE = 32
_CLASSIC = "wire-share-classic"


def beat(group_id: str, member: str, epoch: int, topics: list[str] | None = None, rack: str | None = None) -> Message:
    return sh.ShareGroupHeartbeatRequest(group_id, member, epoch, rack, topics)


def prepare(harness: WireHarness, name: str, partitions: int = 2) -> None:
    """Create a topic with three batches of three records in partition 0, and a group of the same name from offset 0."""
    harness.create_topics({name: (partitions, {})})
    batches = [build_batch([Record(1_000 + index, b"k", b"v") for index in range(3)]) for _ in range(3)]
    for data in batches:
        topic = pr.TopicProduceData("", harness.topic_ids[name], [pr.PartitionProduceData(0, data)])
        answer = harness.call(pr.ProduceRequest(None, -1, 10_000, [topic]), 13)
        assert isinstance(answer, pr.ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0
    change = ia.AlterableConfig("share.auto.offset.reset", 0, "earliest")
    resource = ia.AlterConfigsResource(_GROUP_RESOURCE, name, [change])
    harness.call(ia.IncrementalAlterConfigsRequest([resource]), 1)
    harness.settle()


def join(harness: WireHarness, name: str, partitions: int = 2) -> int:
    """Let a member join the group of a topic's name, and return its epoch once it has all partitions."""
    deadline = time.monotonic() + TIMEOUT_S
    epoch, topics = 0, [name]
    while True:
        answer = harness.call(beat(name, M, epoch, topics), 1)
        assert isinstance(answer, sh.ShareGroupHeartbeatResponse)
        assert answer.error_code == 0, answer
        epoch = answer.member_epoch
        assigned = [] if answer.assignment is None else answer.assignment.topic_partitions
        if sum(len(each.partitions) for each in assigned) == partitions:
            return epoch
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)


def read(
    harness: WireHarness, name: str, epoch: int, acknowledged: Iterable[Acknowledgement] = (), **fields: object
) -> sf.ShareFetchRequest:
    """Return a share fetch of partition 0 that does not wait."""
    batches = [sf.AcknowledgementBatch(*each) for each in acknowledged]
    topics = [sf.FetchTopic(harness.topic_ids.get(name, UNKNOWN_ID), [sf.FetchPartition(0, 0, batches)])]
    request = sf.ShareFetchRequest(name, M, epoch, 0, 0, 1 << 20, 500, 500, topics=topics)
    for field, value in fields.items():
        setattr(request, field, value)
    return request


def acknowledge(
    harness: WireHarness, name: str, epoch: int, *acknowledged: Acknowledgement, **fields: object
) -> sa.ShareAcknowledgeRequest:
    """Return acknowledgements of partition 0."""
    batches = [sa.AcknowledgementBatch(*each) for each in acknowledged]
    topics = [sa.AcknowledgeTopic(harness.topic_ids.get(name, UNKNOWN_ID), [sa.AcknowledgePartition(0, batches)])]
    request = sa.ShareAcknowledgeRequest(name, M, epoch, topics=topics)
    for field, value in fields.items():
        setattr(request, field, value)
    return request


def offsets(name: str, *partitions: int, group_id: str | None = None) -> Message:
    """Return a question for start offsets: of these partitions, or of all of the group."""
    topics = [do.DescribeShareGroupOffsetsRequestTopic(name, list(partitions))] if partitions else None
    return do.DescribeShareGroupOffsetsRequest([do.DescribeShareGroupOffsetsRequestGroup(group_id or name, topics)])


def heartbeat(harness: WireHarness, _version: int) -> Scenario:
    name = "wire-share-beats"
    committed = [oc.OffsetCommitRequestTopic("plain", partitions=[oc.OffsetCommitRequestPartition(0, 5)])]
    yield "a classic group", oc.OffsetCommitRequest(_CLASSIC, -1, "", topics=committed)
    yield "no member id", beat(name, "", 0, [name])
    yield "a long member id", beat(name, "m" * 37, 0, [name])
    yield "a blank group id", beat(" ", M, 0, [name])
    yield "a blank rack", beat(name, M, 0, [name], " ")
    yield "no subscription", beat(name, M, 0)
    yield "an empty subscription", beat(name, M, 0, [])
    yield "epoch -2", beat(name, M, -2)
    yield "an unknown group", beat(name, M, 1)
    yield "an unknown group left", beat(name, M, -1)
    yield "an invalid topic name", beat("wire-share-invalid", M, 0, ["a b"])
    yield "a missing topic", beat("wire-share-missing", M, 0, ["wire-nowhere"])
    prepare(harness, name, 1)  # both members get the partition, whatever the order of the brokers' tables
    epoch = join(harness, name, 1)
    yield "nothing new", beat(name, M, epoch)
    yield "the same topics", beat(name, M, epoch, [name])
    yield "the previous epoch", beat(name, M, epoch - 1)
    yield "a later epoch", beat(name, M, epoch + 5)
    yield "an unknown member", beat(name, N, epoch)
    yield "an unknown member leaves", beat(name, N, -1)
    yield "a member joins again", beat(name, M, 0, [name])
    yield "a second member", beat(name, N, 0, [name], "rack")
    yield "the first member shares", beat(name, M, epoch)
    yield "another subscription", beat(name, N, epoch + 1, ["wire-nowhere"])
    yield "a classic member", jg.JoinGroupRequest(name, 30_000, 30_000, "", None, "consumer", [_protocol()])
    yield "a share member of a classic group", beat(_CLASSIC, M, 0, [name])
    yield "share groups", lg.ListGroupsRequest([], ["share"])
    yield "the group is described", sd.ShareGroupDescribeRequest([name, "wire-unknown", "", _CLASSIC], True)
    yield "a group with members is deleted", dg.DeleteGroupsRequest([name])
    yield "leaving", beat(name, N, -1)
    yield "the last one leaves", beat(name, M, -1)
    yield "an empty group", sd.ShareGroupDescribeRequest([name])
    yield "an empty group is deleted", dg.DeleteGroupsRequest([name])
    yield "a deleted group", sd.ShareGroupDescribeRequest([name])


def describe(_harness: WireHarness, _version: int) -> Scenario:
    yield "a group with a missing topic", sd.ShareGroupDescribeRequest(["wire-share-missing"])
    yield "no group", sd.ShareGroupDescribeRequest([])


def fetch(harness: WireHarness, version: int) -> Scenario:
    name = f"wire-share-fetch-{version}"
    yield "an unknown topic", read(harness, name, 0, member_id=N)
    prepare(harness, name)
    join(harness, name)
    yield "no group", read(harness, name, 0, group_id=None)
    yield "an empty group", read(harness, name, 0, group_id="")
    yield "no member", read(harness, name, 0, member_id=None)
    yield "no session", read(harness, name, 3)
    yield "a session closed before", read(harness, name, -1)
    yield "acknowledgements in a new session", read(harness, name, 0, [(0, 2, [ACCEPT])])
    yield "no records wanted", read(harness, name, 0, max_records=0)
    yield "records", read(harness, name, 0, max_wait_ms=WAIT_MS, min_bytes=1)
    yield "nothing more", read(harness, name, 1)
    yield "a former epoch", read(harness, name, 1)
    yield "a later epoch", read(harness, name, 9)
    yield "another member", read(harness, name, 2, member_id=N)
    yield "accepted records", read(harness, name, 2, [(0, 2, [ACCEPT])])
    yield "accepted records again", read(harness, name, 3, [(0, 2, [ACCEPT])])
    yield "records that nobody has", read(harness, name, 4, [(90, 95, [ACCEPT])])
    yield "an unknown type", read(harness, name, 5, [(3, 5, [9])])
    yield "types of other records", read(harness, name, 6, [(3, 5, [ACCEPT, ACCEPT])])
    yield "no type", read(harness, name, 7, [(3, 5, [])])
    yield "a reversed range", read(harness, name, 8, [(5, 3, [ACCEPT])])
    yield "overlapping ranges", read(harness, name, 9, [(3, 5, [ACCEPT]), (5, 6, [ACCEPT])])
    yield "ranges without order", read(harness, name, 10, [(6, 7, [ACCEPT]), (3, 4, [ACCEPT])])
    yield "a type per record", read(harness, name, 11, [(3, 5, [ACCEPT, REJECT, GAP])])
    yield "a renewal without its flag", read(harness, name, 12, [(6, 8, [RENEW])])
    if version >= 2:
        yield "a renewal with records", read(harness, name, 13, [(6, 8, [RENEW])], is_renew_ack=True)
        yield "a renewal", read(harness, name, 13, [(6, 8, [RENEW])], max_bytes=0, max_records=0, is_renew_ack=True)
        yield "an unknown mode", read(harness, name, 14, share_acquire_mode=7)
    yield "another group's session", read(harness, name, 1, group_id="wire-share-other")
    yield "the session is replaced", read(harness, name, 0)
    forgotten = [sf.ForgottenTopic(harness.topic_ids[name], [0])]
    yield "a forgotten topic", read(harness, name, 1, topics=[], forgotten_topics_data=forgotten)
    yield "nothing in the session", read(harness, name, 2, topics=[])
    yield "the end with other partitions", read(harness, name, -1, [(6, 8, [ACCEPT])])
    yield "a session without available records", read(harness, name, 0)
    yield "the second end", read(harness, name, -1, topics=[])
    yield "lag", offsets(name, 0, 1)


def fetch_limited(harness: WireHarness, version: int) -> Scenario:
    yield from fetch(harness, version)
    name = f"wire-share-limits-{version}"
    prepare(harness, name)
    join(harness, name)
    one_record = read(harness, name, 0, max_records=1, max_wait_ms=WAIT_MS, min_bytes=1)
    one_record.share_acquire_mode = int(version >= 2)
    yield "one record", one_record
    yield "small batches", read(harness, name, 1, batch_size=1, max_wait_ms=WAIT_MS, min_bytes=1)
    released = (3, 3, [RELEASE])
    yield "a released record", acknowledge(harness, name, 2, released)
    yield "the released record again", read(harness, name, 3, max_wait_ms=WAIT_MS, min_bytes=1)
    yield "the end of the session", read(harness, name, -1, topics=[])


def acknowledgements(harness: WireHarness, version: int) -> Scenario:
    name = f"wire-share-ack-{version}"
    prepare(harness, name)
    join(harness, name)
    yield "no session", acknowledge(harness, name, 3, (0, 2, [ACCEPT]))
    yield "a new session", acknowledge(harness, name, 0, (0, 2, [ACCEPT]))
    yield "no group", acknowledge(harness, name, 1, (0, 2, [ACCEPT]), group_id=None)
    yield "no member", acknowledge(harness, name, 1, (0, 2, [ACCEPT]), member_id=None)
    yield "records", read(harness, name, 0, max_wait_ms=WAIT_MS, min_bytes=1)
    yield "a later epoch", acknowledge(harness, name, 4, (0, 2, [ACCEPT]))
    yield "another member", acknowledge(harness, name, 1, (0, 2, [ACCEPT]), member_id=N)
    yield "no ranges", acknowledge(harness, name, 1)
    yield "an unknown type", acknowledge(harness, name, 2, (0, 2, [7]))
    yield "a negative type", acknowledge(harness, name, 3, (0, 2, [-1]))
    yield "no type", acknowledge(harness, name, 4, (0, 2, []))
    yield "types of other records", acknowledge(harness, name, 5, (0, 2, [ACCEPT, ACCEPT]))
    yield "a reversed range", acknowledge(harness, name, 6, (2, 0, [ACCEPT]))
    yield "overlapping ranges", acknowledge(harness, name, 7, (0, 2, [ACCEPT]), (2, 3, [ACCEPT]))
    yield "records after the end", acknowledge(harness, name, 8, (5, 20, [ACCEPT]))
    yield "accepted and released", acknowledge(harness, name, 9, (0, 2, [ACCEPT]), (3, 5, [RELEASE]))
    yield "released records again", acknowledge(harness, name, 10, (3, 5, [RELEASE]))
    yield "released records", read(harness, name, 11, max_wait_ms=WAIT_MS, min_bytes=1)
    yield "a renewal without its flag", acknowledge(harness, name, 12, (3, 5, [RENEW]))
    if version >= 2:
        yield "a renewal", acknowledge(harness, name, 13, (3, 5, [RENEW]), is_renew_ack=True)
    unknown = [sa.AcknowledgeTopic(UNKNOWN_ID, [sa.AcknowledgePartition(0, [sa.AcknowledgementBatch(0, 1, [1])])])]
    yield "an unknown topic", acknowledge(harness, name, 13 + (version >= 2), topics=unknown)
    yield "the end", acknowledge(harness, name, -1, (3, 5, [REJECT]))
    yield "the second end", acknowledge(harness, name, -1)
    yield "lag", offsets(name, 0)


def describe_offsets(harness: WireHarness, version: int) -> Scenario:
    name = f"wire-share-offsets-{version}"
    yield "an unknown group", offsets(name, 0)
    prepare(harness, name)
    join(harness, name)
    yield "no state yet", offsets(name, 0, 1)
    yield "records", read(harness, name, 0, max_wait_ms=WAIT_MS, min_bytes=1)
    yield "accepted records", acknowledge(harness, name, 1, (0, 4, [ACCEPT]))
    yield "the start after them", offsets(name, 0, 1)
    yield "accepted records later", acknowledge(harness, name, 2, (6, 7, [ACCEPT]))
    yield "lag without them", offsets(name, 0)
    yield "all partitions", offsets(name)
    yield "a missing topic", offsets("wire-nowhere", 0, group_id=name)
    yield "another topic", offsets("plain", 0, group_id=name)
    yield "a group of another type", offsets(name, 0, group_id=_CLASSIC)
    yield "an empty group id", do.DescribeShareGroupOffsetsRequest([do.DescribeShareGroupOffsetsRequestGroup("")])
    yield "the end of the session", read(harness, name, -1, topics=[])
    yield "the member leaves", beat(name, M, -1)
    yield "an empty group", offsets(name)


def _altered(group_id: str, *topics: tuple[str, Sequence[tuple[int, int]]]) -> Message:
    rows = [
        al.AlterShareGroupOffsetsRequestTopic(topic, [al.AlterShareGroupOffsetsRequestPartition(*each) for each in new])
        for topic, new in topics
    ]
    return al.AlterShareGroupOffsetsRequest(group_id, rows)


def alter_offsets(harness: WireHarness, _version: int) -> Scenario:
    name = "wire-share-alter"
    prepare(harness, name)
    yield "an empty group id", _altered("", (name, [(0, 1)]))
    yield "no topic", _altered("wire-share-nothing")
    yield "a missing topic", _altered(name, ("wire-nowhere", [(0, 1)]))
    yield "a missing partition", _altered(name, (name, [(0, 1), (9, 1)]))
    yield "a new group", _altered("wire-share-new", (name, [(0, 3)]))
    yield "the new group", sd.ShareGroupDescribeRequest(["wire-share-new"])
    yield "offsets of the new group", offsets(name, 0, 1, group_id="wire-share-new")
    join(harness, name)
    yield "a group with members", _altered(name, (name, [(0, 1)]))
    yield "leaving", beat(name, M, -1)
    yield "an empty group", _altered(name, (name, [(0, 3), (1, 0)]))
    yield "the altered offset", offsets(name, 0)
    join(harness, name)
    yield "records", read(harness, name, 0, max_wait_ms=WAIT_MS, min_bytes=1)
    yield "the end of the session", read(harness, name, -1, topics=[])
    yield "leaving again", beat(name, M, -1)
    yield "a group of another type", _altered(_CLASSIC, (name, [(0, 1)]))
    yield "a negative offset", _altered(name, (name, [(0, -5)]))
    yield "an offset after the end", _altered(name, (name, [(0, 500)]))
    yield "the offset after the end", offsets(name, 0)


def delete_offsets(harness: WireHarness, _version: int) -> Scenario:
    def of(group_id: str, *topics: str) -> Message:
        rows = [de.DeleteShareGroupOffsetsRequestTopic(each) for each in topics]
        return de.DeleteShareGroupOffsetsRequest(group_id, rows)

    name = "wire-share-delete"
    prepare(harness, name)
    yield "an unknown group", of("wire-unknown", name)
    yield "an empty group id", of("", name)
    yield "a group of another type", of(_CLASSIC, name)
    join(harness, name)
    yield "a group with members", of(name, name)
    yield "leaving", beat(name, M, -1)
    yield "a missing topic", of(name, "wire-nowhere")
    yield "another topic", of(name, "plain")
    yield "no topic", of(name)
    yield "a topic", of(name, name)
    yield "the topic again", of(name, name)
    yield "offsets afterwards", offsets(name, 0)
    yield "the group is deleted", dg.DeleteGroupsRequest([name])


_STATE_GROUP = "wire-share-states"


def initialize_state(harness: WireHarness, _version: int) -> Scenario:
    name = "wire-share-states"
    harness.create_topics({name: (2, {})})
    harness.settle()

    def of(index: int, epoch: int, start: int, group_id: str = _STATE_GROUP, topic: str = name) -> Message:
        topic_id = harness.topic_ids.get(topic, UNKNOWN_ID)
        data = sini.InitializeStateData(topic_id, [sini.PartitionData(index, epoch, start)])
        return sini.InitializeShareGroupStateRequest(group_id, [data])

    yield "a state", of(0, 2, 5)
    yield "the same epoch", of(0, 2, 6)
    yield "an earlier epoch", of(0, 1, 6)
    yield "an empty group id", of(0, 2, 5, "")
    yield "an unknown topic", of(0, 2, 5, topic="wire-nowhere")
    yield "an unknown partition", of(9, 2, 5)
    yield "a negative partition", of(-1, 2, 5)
    yield "no topic", sini.InitializeShareGroupStateRequest(_STATE_GROUP, [])
    yield "no start offset", of(1, 0, -1)


def write_state(harness: WireHarness, version: int) -> Scenario:
    def of(*batches: swri.StateBatch, index: int = 0, epochs: tuple[int, int] = (2, 3), start: int = 5) -> Message:
        row = swri.PartitionData(index, *epochs, start, 1, list(batches))
        data = swri.WriteStateData(harness.topic_ids[_STATE_GROUP], [row])
        return swri.WriteShareGroupStateRequest(_STATE_GROUP, [data])

    some = swri.StateBatch(6, 7, 2, 1)
    yield "batches", of(some, epochs=(2, 3 + version))
    yield "an earlier leader", of(some, epochs=(2, 1))
    yield "an earlier state epoch", of(some, epochs=(1, 9))
    yield "a later state epoch", of(some, epochs=(7, 9))
    yield "a state that does not exist", of(some, index=9)
    yield "a start offset alone", of(start=6 + version, epochs=(2, 3 + version))
    yield "a reversed batch", of(swri.StateBatch(9, 7, 2, 1), epochs=(2, 3 + version), start=6 + version)
    yield "no topic", swri.WriteShareGroupStateRequest(_STATE_GROUP, [])


def read_state(harness: WireHarness, _version: int) -> Scenario:
    def of(index: int, leader_epoch: int, group_id: str = _STATE_GROUP, topic: str = _STATE_GROUP) -> Message:
        data = srea.ReadStateData(harness.topic_ids.get(topic, UNKNOWN_ID), [srea.PartitionData(index, leader_epoch)])
        return srea.ReadShareGroupStateRequest(group_id, [data])

    yield "a state", of(0, 9)
    yield "an earlier leader", of(0, 1)
    yield "an initial state", of(1, 0)
    yield "a state that does not exist", of(9, 0)
    yield "an unknown topic", of(0, 0, topic="wire-nowhere")
    yield "an unknown group", of(0, 0, "wire-unknown")
    yield "no topic", srea.ReadShareGroupStateRequest(_STATE_GROUP, [])


def summarize_state(harness: WireHarness, _version: int) -> Scenario:
    def of(index: int, leader_epoch: int, group_id: str = _STATE_GROUP) -> Message:
        row = ssum.PartitionData(index, leader_epoch)
        data = ssum.ReadStateSummaryData(harness.topic_ids[_STATE_GROUP], [row])
        return ssum.ReadShareGroupStateSummaryRequest(group_id, [data])

    yield "a state", of(0, -1)
    yield "a state of before", of(0, 1)
    yield "an initial state", of(1, -1)
    yield "an unknown group", of(0, -1, "wire-unknown")
    yield "no topic", ssum.ReadShareGroupStateSummaryRequest(_STATE_GROUP, [])


def delete_state(harness: WireHarness, _version: int) -> Scenario:
    def of(index: int, group_id: str = _STATE_GROUP) -> Message:
        data = sdel.DeleteStateData(harness.topic_ids[_STATE_GROUP], [sdel.PartitionData(index)])
        return sdel.DeleteShareGroupStateRequest(group_id, [data])

    yield "a state", of(0)
    yield "a state that is gone", of(0)
    yield "an unknown group", of(0, "wire-unknown")
    yield "no topic", sdel.DeleteShareGroupStateRequest(_STATE_GROUP, [])


def _protocol() -> jg.JoinGroupRequestProtocol:
    return jg.JoinGroupRequestProtocol("range", bytes(6))


SHARE_SCENARIOS: Mapping[ApiKey, Callable[[WireHarness, int], Scenario]] = {
    ApiKey.SHARE_GROUP_HEARTBEAT: heartbeat,
    ApiKey.SHARE_GROUP_DESCRIBE: describe,
    ApiKey.SHARE_FETCH: fetch_limited,
    ApiKey.SHARE_ACKNOWLEDGE: acknowledgements,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: describe_offsets,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: alter_offsets,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: delete_offsets,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: initialize_state,
    ApiKey.WRITE_SHARE_GROUP_STATE: write_state,
    ApiKey.READ_SHARE_GROUP_STATE: read_state,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: summarize_state,
    ApiKey.DELETE_SHARE_GROUP_STATE: delete_state,
}
