"""Batches as a page of records: text, hex, JSON, transactions, limits."""

import json

import pytest

from broker.console.record_page import (
    HEADERS_MAX,
    HEX_BYTES_MAX,
    PAGE_TEXT_BYTES_MAX,
    TEXT_BYTES_MAX,
    FetchedRecords,
    OffsetWindow,
    RecordPage,
    data_of,
    read_page,
)
from protocol.ids import LeaderEpoch
from protocol.records.batch import patch
from protocol.records.builder import Record, build_batch
from protocol.records.compression import Codec
from protocol.records.control import ControlType, end_transaction_marker

EVERYTHING = OffsetWindow(0, 10_000, 1_000)


def batch(*values: bytes | None, base_offset: int = 0, codec: int = Codec.NONE, producer: int = -1) -> bytes:
    records = [Record(1_000 + number, b"k", value, [("h", b"\xff")]) for number, value in enumerate(values)]
    return build_batch(records, base_offset=base_offset, codec=codec, producer_id=producer, transactional=producer >= 0)


def marker(kind: ControlType, producer: int, base_offset: int) -> bytes:
    data = bytearray(end_transaction_marker(kind, producer, 0, 0, 5))
    patch(data, 0, base_offset, LeaderEpoch(0))
    return bytes(data)


def page_of(records: bytes, window: OffsetWindow = EVERYTHING, **more: object) -> RecordPage:
    return read_page(FetchedRecords(records, 10_000, **more), window)  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", list(Codec))
def test_records_of_every_codec_are_shown(codec: Codec) -> None:
    page = page_of(batch(b"one", None, codec=codec))
    first, second = page.items
    assert (first["offset"], first["time_ms"], first["value"]["text"], first["codec"]) == (
        0,
        1_000,
        "one",
        codec.name.lower(),
    )
    assert (second["value"], second["key"]["text"], page.next_offset) == (None, "k", 2)
    assert first["headers"][0]["value"]["hex"] == "ff"


def test_window_cuts_within_batches() -> None:
    records = batch(b"0", b"1", b"2") + batch(b"3", b"4", base_offset=3)
    page = page_of(records, OffsetWindow(1, 4, 100))
    assert [item["offset"] for item in page.items] == [1, 2, 3]
    assert (page.next_offset, page.is_truncated) == (4, False)
    page = page_of(records, OffsetWindow(1, 5, 2))
    assert [item["offset"] for item in page.items] == [1, 2]


def test_markup_stays_text() -> None:
    text = "<script>alert(1)</script>\u2028</pre>"
    (item,) = page_of(batch(text.encode())).items
    assert json.loads(json.dumps(item))["value"]["text"] == text


@pytest.mark.parametrize(
    ("data", "text", "is_json"),
    [
        (b'{"a": 1}', '{"a": 1}', True),
        (b"[1, 2]", "[1, 2]", True),
        (b"{broken", "{broken", False),
        (b"[" * 60_000, "[" * 60_000, False),
        (b"12", "12", False),
        (b"", "", False),
        (b"\xff\x00", None, False),
    ],
)
def test_text_and_json_are_recognized(data: bytes, text: str | None, is_json: bool) -> None:
    found = data_of(data)
    assert found is not None
    assert (found["text"], found["json"], found["size"]) == (text, is_json, len(data))


def test_long_values_are_cut_between_characters() -> None:
    found = data_of(b"x" + "é".encode() * TEXT_BYTES_MAX)
    assert found is not None
    assert found["text"] == "x" + "é" * ((TEXT_BYTES_MAX - 1) // 2)
    assert (found["cut"], found["json"], len(found["hex"])) == (True, False, 2 * HEX_BYTES_MAX)


def test_page_ends_before_it_is_too_large() -> None:
    page = page_of(batch(*[b"x" * 50_000] * 20))
    assert page.is_truncated
    assert len(page.items) * 50_000 <= PAGE_TEXT_BYTES_MAX
    assert page.next_offset == len(page.items)
    assert len(page_of(batch(b"x" * 900_000)).items) == 1  # one record is always shown


def test_headers_are_limited() -> None:
    headers = [("n" * 5_000, b"v" * 5_000)] * (HEADERS_MAX + 7)
    (item,) = page_of(build_batch([Record(1, None, b"v", headers)])).items
    assert (len(item["headers"]), item["headers_count"]) == (HEADERS_MAX, HEADERS_MAX + 7)
    assert len(json.dumps(item)) < 600_000
    assert item["headers"][0]["value"]["cut"]


def test_states_of_transactions_are_shown() -> None:
    records = b"".join(
        [
            batch(b"a", base_offset=0, producer=7),
            batch(b"b", base_offset=1, producer=8),
            marker(ControlType.ABORT, 7, 2),
            marker(ControlType.COMMIT, 8, 3),
            batch(b"c", base_offset=4, producer=7),
            batch(b"d", base_offset=5),
        ]
    )
    page = read_page(FetchedRecords(records, 4, [(7, 0)]), EVERYTHING)
    assert [item["transaction"] for item in page.items] == [
        "aborted",
        "committed",
        "aborted",
        "committed",
        "open",
        None,
    ]
    assert [item.get("marker") for item in page.items] == [None, None, "abort", "commit", None, None]


def test_damaged_batch_ends_the_page_with_a_sentence() -> None:
    damaged = bytearray(batch(b"two", base_offset=1))
    damaged[-1] ^= 1
    page = page_of(batch(b"one") + bytes(damaged) + batch(b"three", base_offset=2))
    assert [item["offset"] for item in page.items] == [0]
    assert page.problem == "The batch at offset 1 cannot be shown: the checksum is wrong."
    assert page.next_offset == 2


def test_bomb_is_not_decompressed() -> None:
    bomb = build_batch([Record(1, None, bytes(40 * 1024 * 1024))], codec=Codec.ZSTD)
    page = page_of(bomb)
    assert (page.items, page.problem is not None) == ([], True)
