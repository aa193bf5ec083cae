"""Groups of every kind: lists, members, assignments, and lag by partition over time."""

import asyncio
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

from broker.api.pipeline.permission import DESCRIBE_GROUP, DESCRIBE_TOPIC
from broker.console.answers import SharedAnswers
from broker.console.cluster import ConsoleCluster
from broker.console.group_members import (
    GroupView,
    describe_classic,
    describe_consumer,
    describe_share,
    describe_streams,
)
from broker.console.lag_history import GroupLags, LagHistory
from broker.console.listing import Filter, RowListing
from broker.console.request import ConsoleError, ConsoleRequest, Json, Page, cut, not_found, paged
from broker.console.topics import DESCRIBED_MAX, TopicViews
from broker.coordination.partitioner import partition_for
from broker.metadata.image.topic_names import GROUP_OFFSETS_TOPIC
from broker.net.peer import PeerError
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from protocol.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse

TYPES: Final = ("", "classic", "consumer", "share", "streams")
_NAMES_VERSION: Final = (8, 9)
"""Versions of OffsetFetch with several groups and with topic names."""


class ListedGroup(NamedTuple):
    """A group as its coordinator lists it."""

    id: str
    type: str
    protocol: str
    state: str
    coordinator: int


class _Groups(NamedTuple):
    by_id: Mapping[str, ListedGroup]
    listing: RowListing[ListedGroup]
    missing: Sequence[Json]


class _Progress(NamedTuple):
    """Committed offsets by topic and partition; share groups have start offsets and lags of their own."""

    committed: Mapping[tuple[str, int], int]
    lags: Mapping[tuple[str, int], int | None]


class GroupViews:
    """The views `groups` and `group`. Keeps the lag of groups that somebody looks at."""

    def __init__(self, cluster: ConsoleCluster, topics: TopicViews, shared: SharedAnswers) -> None:
        self._cluster = cluster
        self._topics = topics
        self._shared = shared
        self._lags = LagHistory()

    async def page(self, request: ConsoleRequest) -> Json:
        """Return a page of groups."""
        page = request.page(("id", "type", "state"))
        kind = request.choice("type", TYPES, "")
        groups = await self._all()
        filters: list[Filter[ListedGroup]] = self._cluster.filters(request, DESCRIBE_GROUP, lambda group: group.id)
        if kind:
            filters.append(Filter(kind, lambda group: group.type == kind))
        found = await groups.listing.select(page, filters)
        described = await self._describe(found.rows)
        items = [self._item(group, described.get(group.id)) for group in found.rows]
        return paged(items, page, found.total, groups.missing)

    async def group(self, request: ConsoleRequest) -> Json:
        """Return a group with members and a page of its partitions."""
        id, page = request.text("id"), request.page(("partition", "lag"))
        if not self._cluster.allows(request, DESCRIBE_GROUP, id):
            raise not_found(f'Group "{id}" does not exist, or {request.principal} may not describe it.')
        groups = await self._all()
        group = groups.by_id.get(id)
        if group is None:
            raise not_found(f'Group "{id}" does not exist, or its coordinator does not answer.')
        described = (await self._describe([group])).get(id)
        progress = await self._progress(group)
        assigned = {} if described is None else described.owners
        known = sorted({*progress.committed, *assigned})
        topics = {topic for topic, _ in known} | (set() if described is None else described.topics)
        visible = frozenset(self._cluster.allowed(request, DESCRIBE_TOPIC, sorted(topics)))
        pairs = [pair for pair in known if pair[0] in visible]
        share_group = id if group.type == "share" else None
        is_whole = len(pairs) <= DESCRIBED_MAX
        asked = pairs if is_whole else cut(pairs, page)
        rows, missing = await self._rows(asked, progress, assigned, share_group)
        lag = sum(row["lag"] for row in rows if row["lag"] is not None) if is_whole else None
        lags = self._sample((id, visible), rows, lag)
        shown = _shown(rows, page) if is_whole else rows
        return {
            **self._item(group, described),
            "epoch": None if described is None else described.epoch,
            "assignor": None if described is None else described.assignor,
            "member_list": [] if described is None else described.members_seen_by(visible),
            "lag": lag,
            "partitions": paged(
                [{**row, "lags": lags.of((row["topic"], row["partition"]))} for row in shown], page, len(pairs)
            ),
            "samples": lags.samples(),
            "missing": [*groups.missing, *missing],
        }

    async def _all(self) -> _Groups:
        return await self._shared.get("groups", self._list_all)

    async def _list_all(self) -> _Groups:
        answers = await self._cluster.ask_all(
            self._cluster.live_brokers, lambda _: ListGroupsRequest(), ListGroupsResponse
        )
        groups: dict[str, ListedGroup] = {}
        for broker, response in answers.by_id.items():
            for each in response.groups:
                kind = each.group_type.lower() or "classic"
                groups[each.group_id] = ListedGroup(each.group_id, kind, each.protocol_type, each.group_state, broker)
            await asyncio.sleep(0)
        rows = [groups[id] for id in sorted(groups)]
        listing = RowListing(
            rows, lambda each: each.id, {"type": lambda each: each.type, "state": lambda each: each.state}
        )
        return _Groups(groups, listing, answers.missing)

    async def _describe(self, groups: Iterable[ListedGroup]) -> Mapping[str, GroupView]:
        """Ask the coordinators for the members of groups. Groups that cannot be described are left out."""
        by_place: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
        for group in groups:
            by_place[group.coordinator, group.type].append(group.id)
        found: dict[str, GroupView] = {}
        for (broker, kind), ids in by_place.items():
            try:
                found.update(await self._describe_at(broker, kind, ids))
            except PeerError:
                continue
        return found

    async def _describe_at(self, broker: int, kind: str, ids: list[str]) -> Mapping[str, GroupView]:
        ask = self._cluster.ask
        match kind:
            case "consumer":
                consumer = await ask(broker, ConsumerGroupDescribeRequest(ids), ConsumerGroupDescribeResponse)
                return {each.group_id: describe_consumer(each) for each in consumer.groups if not each.error_code}
            case "share":
                share = await ask(broker, ShareGroupDescribeRequest(ids), ShareGroupDescribeResponse)
                return {each.group_id: describe_share(each) for each in share.groups if not each.error_code}
            case "streams":
                streams = await ask(broker, StreamsGroupDescribeRequest(ids), StreamsGroupDescribeResponse)
                return {each.group_id: describe_streams(each) for each in streams.groups if not each.error_code}
        classic = await ask(broker, DescribeGroupsRequest(ids), DescribeGroupsResponse)
        return {each.group_id: describe_classic(each) for each in classic.groups if not each.error_code}

    async def _progress(self, group: ListedGroup) -> _Progress:
        if group.type == "share":
            return await self._share_progress(group)
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group.id, None, -1, None)])
        try:
            response = await self._cluster.ask(group.coordinator, request, OffsetFetchResponse, versions=_NAMES_VERSION)
        except PeerError:
            return _Progress({}, {})
        committed = {
            (topic.name, each.partition_index): each.committed_offset
            for found in response.groups
            for topic in found.topics
            for each in topic.partitions
            if each.error_code == ErrorCode.NONE and each.committed_offset >= 0
        }
        return _Progress(committed, {})

    async def _share_progress(self, group: ListedGroup) -> _Progress:
        request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group.id, None)])
        try:
            response = await self._cluster.ask(group.coordinator, request, DescribeShareGroupOffsetsResponse)
        except PeerError:
            return _Progress({}, {})
        found = {
            (topic.topic_name, each.partition_index): each
            for one in response.groups
            for topic in one.topics
            for each in topic.partitions
            if each.error_code == ErrorCode.NONE and each.start_offset >= 0
        }
        return _Progress(
            {pair: each.start_offset for pair, each in found.items()},
            {pair: each.lag if each.lag >= 0 else None for pair, each in found.items()},
        )

    async def _rows(
        self,
        pairs: Sequence[tuple[str, int]],
        progress: _Progress,
        owners: Mapping[tuple[str, int], str],
        share_group: str | None,
    ) -> tuple[Sequence[Json], Sequence[Json]]:
        wanted: defaultdict[str, list[int]] = defaultdict(list)
        for topic, index in pairs:
            wanted[topic].append(index)
        described = await self._topics.describe(wanted, share_group=share_group)
        rows: list[Json] = []
        for topic, index in pairs:
            found = described.by_topic.get(topic, {}).get(index)
            committed = progress.committed.get((topic, index))
            end = None if found is None else found.high_watermark
            lag = progress.lags.get((topic, index))
            if lag is None and committed is not None and end is not None:
                lag = max(0, end - committed)
            is_served = found is not None and found.in_flight_records >= 0
            rows.append(
                {
                    "topic": topic,
                    "partition": index,
                    "committed_offset": committed,
                    "end_offset": end,
                    "lag": lag,
                    "member_id": owners.get((topic, index)),
                    "in_flight": found.in_flight_records if found is not None and is_served else None,
                    "acquired": found.acquired_records if found is not None and is_served else None,
                    "delivery_count_max": found.max_delivery_count if found is not None and is_served else None,
                }
            )
        return rows, described.missing

    def _item(self, group: ListedGroup, described: GroupView | None) -> Json:
        return {
            "id": group.id,
            "type": group.type,
            "protocol": group.protocol,
            "state": group.state if described is None else described.state,
            "members": None if described is None else len(described.members),
            "coordinator": group.coordinator,
        }

    def _sample(self, key: Hashable, rows: Sequence[Json], lag: int | None) -> GroupLags:
        """Add the lags to the samples under `key`, and return these."""
        lags = self._lags.group(key)
        if lag is not None:
            by_partition = {(row["topic"], row["partition"]): row["lag"] for row in rows}
            lags.add(self._cluster.node.clock.now_ms(), by_partition, lag)
        return lags

    def coordinator(self, group_id: str) -> int:
        """Return the broker that coordinates a group. Raise ConsoleError without one."""
        topic = self._cluster.image.topics.by_name(GROUP_OFFSETS_TOPIC)
        if topic is not None and topic.partitions:
            registration = topic.partitions.get(partition_for(group_id, len(topic.partitions)))
            if registration is not None and registration.has_leader:
                return registration.leader
        raise ConsoleError(HTTPStatus.SERVICE_UNAVAILABLE, f'Group "{group_id}" has no coordinator at present.')


def _shown(rows: Sequence[Json], page: Page) -> Sequence[Json]:
    if page.sort == "lag":
        unknown = -1 if page.is_descending else 2**63
        rows = sorted(rows, key=lambda row: unknown if row["lag"] is None else row["lag"], reverse=page.is_descending)
    elif page.is_descending:
        rows = rows[::-1]
    return cut(rows, page)
