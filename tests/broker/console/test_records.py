"""The reader of records: where it begins, its bounds, rights and limits."""

import asyncio
from typing import Any

import pytest

from broker.api.pipeline.permission import AclOperation, AclResourceType
from broker.console.answers import SharedAnswers
from broker.console.records import READS_MAX, RecordViews
from broker.console.request import ConsoleError, Json
from broker.console.topic_index import TopicIndex
from broker.console.topics import TopicViews
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages import fetch, list_offsets
from protocol.records.builder import Record, build_batch
from tests.broker.metadata.images import image_with
from tests.support.fakes.fake_authorizer import GrantedPermissions
from tests.support.harnesses.console_harness import ALICE, ConsoleHarness, asked

START, END = 10, 310
READ_A = [(ALICE, operation, AclResourceType.TOPIC, "a") for operation in (AclOperation.READ, AclOperation.DESCRIBE)]


class Reader:
    """A partition with the offsets from `START` to below `END`, each a batch, stamped with its offset."""

    def __init__(self, authorizer: GrantedPermissions | None = None, fenced: tuple[int, ...] = ()) -> None:
        self.harness = ConsoleHarness(image_with(topics={"a": 1, "b": 1}, fenced=fenced), authorizer)
        self.harness.nodes.answers[fetch.FetchRequest] = self._fetch
        self.harness.nodes.answers[list_offsets.ListOffsetsRequest] = self._offsets
        self.batches_per_fetch = 1_000
        self.code = ErrorCode.NONE
        self.fetches: list[fetch.FetchRequest] = []
        cluster = self.harness.cluster
        shared = SharedAnswers(self.harness.clock.monotonic_ms, 1_000)
        self.views = RecordViews(
            cluster, TopicViews(cluster, TopicIndex(self.harness.node.image, lambda image, topic: 1), shared)
        )

    def _fetch(self, node: int, request: fetch.FetchRequest) -> fetch.FetchResponse:
        self.fetches.append(request)
        begin = request.topics[0].partitions[0].fetch_offset
        offsets = range(begin, min(END, begin + self.batches_per_fetch))
        records = b"".join(build_batch([Record(each, None, str(each).encode())], base_offset=each) for each in offsets)
        part = fetch.PartitionData(0, self.code, END, END, records=records)
        return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse("a", partitions=[part])])

    def _offsets(self, node: int, request: list_offsets.ListOffsetsRequest) -> list_offsets.ListOffsetsResponse:
        timestamp = request.topics[0].partitions[0].timestamp
        offset = {-2: START, -1: END}.get(timestamp, timestamp if timestamp < END else -1)
        part = list_offsets.ListOffsetsPartitionResponse(0, self.code, offset=offset)
        return list_offsets.ListOffsetsResponse(topics=[list_offsets.ListOffsetsTopicResponse("a", [part])])

    async def read(self, **parameters: Any) -> Json:
        return await self.views.records(asked(name="a", partition=0, **parameters))

    async def offsets(self, **parameters: Any) -> list[int]:
        return [item["offset"] for item in (await self.read(**parameters))["items"]]


async def test_newest_records_come_first() -> None:
    answer = await Reader().read(limit=5)
    assert [item["value"]["text"] for item in answer["items"]] == ["305", "306", "307", "308", "309"]
    assert (answer["start_offset"], answer["end_offset"]) == (START, END)
    assert (answer["previous_offset"], answer["next_offset"]) == (305, None)


@pytest.mark.parametrize(
    ("where", "direction", "offsets"),
    [
        ("START", "forward", [10, 11, 12]),
        ("100", "forward", [100, 101, 102]),
        ("100", "back", [97, 98, 99]),
        ("11", "back", [10]),
        ("0", "forward", [10, 11, 12]),
        ("9999", "forward", []),
        ("9999", "back", []),
        ("time:200", "forward", [200, 201, 202]),
        ("time:9999", "forward", []),
    ],
)
async def test_reading_begins_at_an_offset_or_a_time(where: str, direction: str, offsets: list[int]) -> None:
    assert await Reader().offsets(**{"from": where, "direction": direction, "limit": 3}) == offsets


async def test_pages_forward_meet_without_gap() -> None:
    reader, seen = Reader(), list[int]()
    where: str | int | None = "START"
    while where is not None:
        answer = await reader.read(**{"from": where, "limit": 90})
        seen += [item["offset"] for item in answer["items"]]
        where = answer["next_offset"]
    assert seen == list(range(START, END))


@pytest.mark.parametrize("where", ["", "x", "-1", "time:", "time:x", "time:-5", "9" * 30, "earliest"])
async def test_other_beginnings_are_refused(where: str) -> None:
    with pytest.raises(ConsoleError, match='"from" must be START, END') as refused:
        await Reader().read(**{"from": where})
    assert refused.value.status == 400


async def test_work_of_a_page_is_bounded() -> None:
    reader = Reader()
    reader.batches_per_fetch = 1
    assert await reader.offsets(**{"from": "START", "limit": 200}) == [10, 11, 12, 13]
    assert all(request.max_bytes <= 1024 * 1024 for request in reader.fetches)
    with pytest.raises(ConsoleError, match='"limit" must be a number from 1 to 200'):
        await reader.read(limit=201)


async def test_reads_at_the_same_time_are_bounded() -> None:
    reader = Reader()
    reads = [asyncio.ensure_future(reader.read(limit=1)) for _ in range(READS_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(ConsoleError, match="Other reads are in progress") as refused:
        await reader.read(limit=1)
    assert refused.value.status == 429
    await asyncio.gather(*reads)
    await reader.read(limit=1)


async def test_slow_leader_ends_the_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.console.records.READ_TIMEOUT_S", 0.0)
    with pytest.raises(ConsoleError, match="was not read within") as refused:
        await Reader().read()
    assert refused.value.status == 504


async def test_records_need_the_right_to_read_and_the_decision_is_audited() -> None:
    authorizer = GrantedPermissions(READ_A)
    reader = Reader(authorizer)
    assert len(await reader.offsets(limit=2)) == 2
    authorizer.granted.discard(READ_A[0])
    with pytest.raises(ConsoleError, match='User:alice is not authorized to read topic "a"') as refused:
        await reader.read()
    assert refused.value.status == 403
    assert reader.harness.audit.decisions == [(ALICE, ApiKey.FETCH, "a", True), (ALICE, ApiKey.FETCH, "a", False)]
    with pytest.raises(ConsoleError, match="does not exist"):
        await reader.views.records(asked(name="b", partition=0))


async def test_troubles_are_sentences() -> None:
    reader = Reader()
    with pytest.raises(ConsoleError, match="Partition a-7 does not exist"):
        await reader.views.records(asked(name="a", partition=7))
    reader.code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(ConsoleError, match=r"a-0: .* \(NOT_LEADER_OR_FOLLOWER\)"):
        await reader.read()
    reader.harness.nodes.silent.add(1)
    with pytest.raises(ConsoleError, match="The leader does not answer"):
        await reader.read()
    with pytest.raises(ConsoleError, match="a-0 has no leader"):
        await Reader(fenced=(1,)).read()
