"""A list of the console: rows in the orders of its columns, searched and filtered in short turns of the event loop.

Orders, filters and selections are computed once for each list and kept. A page of a list that was selected before costs
no more than its rows.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from cachetools import LRUCache

from broker.console.request import Page, cut

T = TypeVar("T")

ROWS_PER_TURN: Final = 2_000
"""Rows that are searched, or whose sort keys are read, before other work gets its turn: about a millisecond."""
DECISIONS_PER_TURN: Final = 200
"""Rows that a filter judges before other work gets its turn: an authorizer takes some microseconds for a new name."""
SELECTIONS_MAX: Final = 32
FILTERS_MAX: Final = 16


_Key = tuple[str, str, bool, tuple[Hashable, ...]]
"""Search, column, whether it descends, keys of the filters."""


class Filter(NamedTuple, Generic[T]):
    """A condition on rows. Filters of one list with equal `key` accept the same rows."""

    key: Hashable
    accepts: Callable[[T], bool]


class Selection(NamedTuple, Generic[T]):
    """The rows of a page, and the number of all rows that the search and the filters accept."""

    rows: Sequence[T]
    total: int


class RowListing(Generic[T]):
    """Immutable rows in their default order. `text` is the searched text of a row, `keys` are the other orders."""

    def __init__(
        self, rows: Sequence[T], text: Callable[[T], str], keys: Mapping[str, Callable[[T], Any]] | None = None
    ) -> None:
        self.rows = rows
        self._text = text
        self._keys = keys or {}
        self._texts: Sequence[str] | None = None
        self._orders: dict[tuple[str, bool], Sequence[int]] = {}
        self._accepted: MutableMapping[Hashable, bytearray] = LRUCache(FILTERS_MAX)
        self._selections: MutableMapping[_Key, Sequence[int]] = LRUCache(SELECTIONS_MAX)

    def with_rows(self, rows: Sequence[T]) -> "RowListing[T]":
        """Return the list with other rows of the same texts, which filters and the search depend on alone."""
        other = RowListing(rows, self._text, self._keys)
        other._texts, other._accepted = self._texts, self._accepted
        for key, found in self._selections.items():
            if key[1] not in self._keys:
                other._selections[key] = found
        return other

    async def select(self, page: Page, filters: Sequence[Filter[T]] = ()) -> Selection[T]:
        """Return the rows of a page that contain the search text and satisfy all filters."""
        key = (page.search, page.sort, page.is_descending, tuple(each.key for each in filters))
        found = self._selections.get(key)
        if found is None:
            found = self._selections[key] = await self._find(page, filters)
        return Selection([self.rows[number] for number in cut(found, page)], len(found))

    async def _find(self, page: Page, filters: Sequence[Filter[T]]) -> Sequence[int]:
        order = await self._order(page.sort, page.is_descending)
        masks = [await self._mask(each) for each in filters]
        if not page.search and not masks:
            return order
        texts = await self._lower_texts()
        found: list[int] = []
        for begin in range(0, len(order), ROWS_PER_TURN):
            part = order[begin : begin + ROWS_PER_TURN]
            found += [number for number in part if page.search in texts[number] and all(m[number] for m in masks)]
            await asyncio.sleep(0)
        return found

    async def _order(self, column: str, is_descending: bool) -> Sequence[int]:
        """Return row numbers in the order of a column; equal values stay in the default order."""
        order = self._orders.get((column, is_descending))
        if order is None:
            key = self._keys.get(column)
            if key is None:
                order = range(len(self.rows))[:: -1 if is_descending else 1]
            else:
                values = await self._map(key)
                order = sorted(range(len(values)), key=values.__getitem__, reverse=is_descending)
            self._orders[column, is_descending] = order
        return order

    async def _mask(self, wanted: Filter[T]) -> bytearray:
        mask = self._accepted.get(wanted.key)
        if mask is None:
            mask = bytearray()
            for begin in range(0, len(self.rows), DECISIONS_PER_TURN):
                mask.extend(wanted.accepts(row) for row in self.rows[begin : begin + DECISIONS_PER_TURN])
                await asyncio.sleep(0)
            self._accepted[wanted.key] = mask
        return mask

    async def _lower_texts(self) -> Sequence[str]:
        if self._texts is None:
            self._texts = await self._map(lambda row: self._text(row).lower())
        return self._texts

    async def _map(self, read: Callable[[T], Any]) -> list[Any]:
        values: list[Any] = []
        for begin in range(0, len(self.rows), ROWS_PER_TURN):
            values += [read(row) for row in self.rows[begin : begin + ROWS_PER_TURN]]
            await asyncio.sleep(0)
        return values


class KeptListing(Generic[T]):
    """The list of one source; made again when the source is another object."""

    def __init__(self) -> None:
        self._source: object = None
        self._listing: RowListing[T] | None = None

    def of(self, source: object, make: Callable[[], RowListing[T]]) -> RowListing[T]:
        """Return the list of `source`."""
        if self._listing is None or self._source is not source:
            self._source, self._listing = source, make()
        return self._listing
