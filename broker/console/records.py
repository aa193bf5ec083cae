"""The reader of records: one bounded read at the leader of a partition."""

import asyncio
from http import HTTPStatus
from typing import Final

from broker.api.pipeline.permission import READ_TOPIC
from broker.console.cluster import ConsoleCluster, check
from broker.console.record_page import FetchedRecords, OffsetWindow, RecordPage, read_page
from broker.console.request import ConsoleError, ConsoleRequest, Json, bad_request, not_found
from broker.console.topics import TopicViews
from broker.net.peer import PeerError
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.records.batch import iter_headers

READS_MAX: Final = 4
READ_BYTES: Final = 1024 * 1024
READ_TIMEOUT_S: Final = 10.0
RECORDS_MAX: Final = 200
RECORDS_SHOWN: Final = 50
_FETCHES_MAX: Final = 4
_EARLIEST: Final = -2
_LATEST: Final = -1
_READ_COMMITTED: Final = 1
_READ_UNCOMMITTED: Final = 0
_NAMES_VERSION: Final = (4, 12)
"""Versions of Fetch with topic names."""


class RecordViews:
    """The view `topic/records`."""

    def __init__(self, cluster: ConsoleCluster, topics: TopicViews) -> None:
        self._cluster = cluster
        self._topics = topics
        self._reads = 0

    async def records(self, request: ConsoleRequest) -> Json:
        """Return a page of records, with the bounds of the partition."""
        topic = self._topics.find(request)
        self._cluster.require(request, READ_TOPIC, topic.name, f'read topic "{topic.name}"', ApiKey.FETCH)
        index = request.number("partition", 0, high=2**31 - 1)
        registration = topic.partitions.get(index)
        if registration is None:
            raise not_found(f"Partition {topic.name}-{index} does not exist.")
        if not registration.has_leader:
            raise ConsoleError(HTTPStatus.SERVICE_UNAVAILABLE, f"Partition {topic.name}-{index} has no leader.")
        if self._reads >= READS_MAX:
            raise ConsoleError(HTTPStatus.TOO_MANY_REQUESTS, "Other reads are in progress; try again.")
        self._reads += 1
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                return await self._read(request, _Place(topic.name, index, registration.leader))
        except TimeoutError:
            sentence = f"Partition {topic.name}-{index} was not read within {READ_TIMEOUT_S:.0f} s."
            raise ConsoleError(HTTPStatus.GATEWAY_TIMEOUT, sentence) from None
        except PeerError as error:
            raise ConsoleError(HTTPStatus.SERVICE_UNAVAILABLE, f"The leader {error}.") from error
        finally:
            self._reads -= 1

    async def _read(self, request: ConsoleRequest, place: "_Place") -> Json:
        limit = request.number("limit", RECORDS_SHOWN, low=1, high=RECORDS_MAX)
        is_back = request.choice("direction", ("forward", "back"), "forward") == "back"
        begin, end = await self._offset(place, _EARLIEST), await self._offset(place, _LATEST)
        origin = await self._origin(request.text("from", "END"), place, begin, end, limit)
        if is_back:
            window = OffsetWindow(max(begin, origin - limit), max(begin, min(origin, end)), limit)
        else:
            window = OffsetWindow(min(max(begin, origin), end), end, limit)
        page = await self._page(place, window)
        return {
            "items": page.items,
            "previous_offset": window.first if window.first > begin else None,
            "next_offset": page.next_offset if page.next_offset < end else None,
            "start_offset": begin,
            "end_offset": end,
            "truncated": page.is_truncated,
            "problem": page.problem,
        }

    async def _origin(self, text: str, place: "_Place", begin: int, end: int, limit: int) -> int:
        """Return the offset that the parameter `from` names. Raise ConsoleError."""
        if text == "START":
            return begin
        if text == "END":
            return max(begin, end - limit)
        kind, _, digits = text.rpartition(":")
        if kind not in ("", "time") or not digits.isascii() or not digits.isdigit() or len(digits) > 18:
            raise bad_request(
                'The parameter "from" must be START, END, an offset, or time: and milliseconds since 1970.'
            )
        if kind == "":
            return int(digits)
        found = await self._offset(place, int(digits))
        return found if found >= 0 else end

    async def _page(self, place: "_Place", window: OffsetWindow) -> RecordPage:
        """Read until the page is full, the window ends, or `_FETCHES_MAX` fetches were made."""
        page, first = RecordPage(next_offset=window.first), window.first
        for _ in range(_FETCHES_MAX):
            if first >= window.end or len(page.items) >= window.limit:
                break
            fetched = await self._fetch(place, first)
            rest = OffsetWindow(first, window.end, window.limit - len(page.items))
            found = await asyncio.to_thread(read_page, fetched, rest)
            page.items += found.items
            page.is_truncated, page.problem, page.next_offset = found.is_truncated, found.problem, found.next_offset
            if found.is_truncated or found.problem is not None or found.next_offset <= first:
                break
            first = found.next_offset
        return page

    async def _fetch(self, place: "_Place", offset: int) -> FetchedRecords:
        found = await self._fetch_once(place, offset, _READ_UNCOMMITTED)
        records = found.records or b""
        aborted: list[tuple[int, int]] = []
        if any(header.is_transactional for _, header in iter_headers(records)):
            decided = await self._fetch_once(place, offset, _READ_COMMITTED)
            aborted = [(each.producer_id, each.first_offset) for each in decided.aborted_transactions or ()]
        return FetchedRecords(records, found.last_stable_offset, aborted)

    async def _fetch_once(self, place: "_Place", offset: int, isolation: int) -> PartitionData:
        partition = FetchPartition(place.index, fetch_offset=offset, partition_max_bytes=READ_BYTES)
        request = FetchRequest(
            max_wait_ms=1_000,
            min_bytes=1,
            max_bytes=READ_BYTES,
            isolation_level=isolation,
            session_epoch=-1,
            topics=[FetchTopic(place.topic, partitions=[partition])],
        )
        response = await self._cluster.ask(place.leader, request, FetchResponse, versions=_NAMES_VERSION)
        check(response.error_code, None, str(place))
        found = [each for topic in response.responses for each in topic.partitions]
        if not found:
            raise ConsoleError(HTTPStatus.SERVICE_UNAVAILABLE, f"The leader does not know partition {place}.")
        check(found[0].error_code, None, str(place))
        return found[0]

    async def _offset(self, place: "_Place", timestamp: int) -> int:
        partition = ListOffsetsPartition(place.index, timestamp=timestamp)
        request = ListOffsetsRequest(-1, _READ_UNCOMMITTED, [ListOffsetsTopic(place.topic, [partition])], 2_000)
        response = await self._cluster.ask(place.leader, request, ListOffsetsResponse)
        found = [each for topic in response.topics for each in topic.partitions]
        if not found:
            raise ConsoleError(HTTPStatus.SERVICE_UNAVAILABLE, f"The leader does not know partition {place}.")
        if found[0].error_code != ErrorCode.NONE:
            check(found[0].error_code, None, str(place))
        return found[0].offset


class _Place:
    """A partition and its leader."""

    def __init__(self, topic: str, index: int, leader: int) -> None:
        self.topic = topic
        self.index = index
        self.leader = leader

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"
