"""Lists of the console: order, search, filters, and the work that a turn of the event loop does."""

import asyncio
from itertools import pairwise

from broker.console.listing import DECISIONS_PER_TURN, Filter, KeptListing, RowListing
from tests.support.harnesses.console_harness import asked


class Counting:
    """Counts how often rows are read and judged."""

    def __init__(self) -> None:
        self.texts = 0
        self.judged = 0

    def text(self, row: int) -> str:
        self.texts += 1
        return f"Row-{row:05}"

    def is_even(self, row: int) -> bool:
        self.judged += 1
        return row % 2 == 0


async def test_page_has_the_rows_that_contain_the_search_in_any_case() -> None:
    listing = RowListing(range(1_000), Counting().text)
    found = await listing.select(asked(search="row-0099", size=3, page=1).page())
    assert (list(found.rows), found.total) == ([993, 994, 995], 10)


async def test_equal_values_of_a_column_stay_in_the_default_order() -> None:
    listing = RowListing(["a", "b", "c", "d"], str, {"kind": lambda row: row in "bd"})
    assert (await listing.select(asked(sort="kind").page(("name", "kind")))).rows == ["a", "c", "b", "d"]
    assert (await listing.select(asked(sort="-kind").page(("name", "kind")))).rows == ["b", "d", "a", "c"]
    assert (await listing.select(asked(sort="-name").page(("name", "kind")))).rows == ["d", "c", "b", "a"]


async def test_filters_hold_together_with_the_search() -> None:
    counting = Counting()
    listing = RowListing(range(100), counting.text)
    filters: list[Filter[int]] = [Filter("even", counting.is_even), Filter("high", lambda row: row > 50)]
    found = await listing.select(asked(search="row-0005").page(), filters)
    assert list(found.rows) == [52, 54, 56, 58]


async def test_second_page_reads_no_row_again() -> None:
    counting = Counting()
    listing = RowListing(range(10_000), counting.text)
    filters = [Filter("even", counting.is_even)]
    await listing.select(asked(search="7").page(), filters)
    assert (counting.texts, counting.judged) == (10_000, 10_000)
    await listing.select(asked(search="7", page=3).page(), filters)
    await listing.select(asked(search="77").page(), filters)  # another search judges nothing anew
    assert (counting.texts, counting.judged) == (10_000, 10_000)


async def test_filter_lets_other_work_run() -> None:
    counting, seen = Counting(), [0]

    async def watch() -> None:
        while True:
            seen.append(counting.judged)
            await asyncio.sleep(0)

    watching = asyncio.ensure_future(watch())
    await RowListing(range(10_000), counting.text).select(asked().page(), [Filter("even", counting.is_even)])
    watching.cancel()
    assert max(after - before for before, after in pairwise(seen)) <= DECISIONS_PER_TURN


async def test_kept_list_follows_its_source() -> None:
    kept: KeptListing[int] = KeptListing()
    source, made = object(), []

    def make() -> RowListing[int]:
        made.append(1)
        return RowListing([1], str)

    first = kept.of(source, make)
    assert kept.of(source, make) is first
    assert kept.of(object(), make) is not first
    assert len(made) == 2
