"""All groups of a shard. A group id is in one of the tables, which differ by the type of the group."""

from collections.abc import Iterator
from typing import NamedTuple

from broker.groups.classic import ClassicGroup
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.table import ConsumerGroupTable
from broker.groups.share.group import ShareGroup
from broker.groups.share.table import ShareGroupTable
from broker.groups.streams.group import StreamsGroup
from broker.groups.streams.table import StreamsGroupTable
from broker.groups.table import GroupTable

ModernGroup = ConsumerGroup | StreamsGroup | ShareGroup
AnyGroup = ClassicGroup | ModernGroup


class GroupDirectory(NamedTuple):
    """The tables of a shard by group type."""

    classic: GroupTable
    consumer: ConsumerGroupTable
    streams: StreamsGroupTable
    share: ShareGroupTable

    def find(self, group_id: str) -> AnyGroup | None:
        """Return the group of any type."""
        return self.modern(group_id) or self.classic.get(group_id)

    def modern(self, group_id: str) -> ModernGroup | None:
        """Return the group if its members are replayed state, which heartbeats of their own kind change."""
        return self.consumer.get(group_id) or self.streams.get(group_id) or self.share.get(group_id)

    def ids(self) -> Iterator[str]:
        """Yield the ids of all groups."""
        for table in (self.classic, self.consumer, self.streams, self.share):
            yield from table.ids()
