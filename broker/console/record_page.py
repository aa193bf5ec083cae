"""Record batches of a partition as JSON for the reader of records. PURE; runs in a thread.

Limits keep a page small: the number of records, the bytes of a key, value or header that are shown, the headers of a
record, the bytes of the page, and the memory of a decompressed batch. A page ends before the first record that does not
fit.
"""

import base64
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field
from typing import Final

from broker.console.request import Json
from protocol.lazy_dataclass import lazy_dataclass
from protocol.primitives import Buffer
from protocol.records.batch import BatchHeader, crc_is_valid, iter_headers
from protocol.records.compression import Codec
from protocol.records.errors import MalformedBatch, MalformedRecords
from protocol.records.reader import FullRecord, iter_records

TEXT_BYTES_MAX: Final = 64 * 1024
HEX_BYTES_MAX: Final = 4 * 1024
PAGE_TEXT_BYTES_MAX: Final = 256 * 1024
"""Bytes of keys, values and headers in a page: encoding them as JSON holds the event loop for a millisecond or two."""
HEADERS_MAX: Final = 100
HEADER_BYTES_MAX: Final = 1024
DECOMPRESSED_MAX: Final = 32 * 1024 * 1024
_LOG_APPEND_TIME: Final = 0x08
_MARKERS: Final = {0: "abort", 1: "commit"}


@lazy_dataclass(frozen=True, slots=True)
class OffsetWindow:
    """The wanted records: offsets from `first` to below `end`, at most `limit`."""

    first: int
    end: int
    limit: int


@lazy_dataclass(frozen=True, slots=True)
class FetchedRecords:
    """A fetch response of one partition; `aborted` has (producer id, first offset) of aborted transactions."""

    records: Buffer
    last_stable_offset: int
    aborted: Sequence[tuple[int, int]] = ()


@lazy_dataclass(slots=True)
class RecordPage:
    """The records of a page; `next_offset` is the first one that was not looked at."""

    items: list[Json] = field(default_factory=list)
    next_offset: int = 0
    is_truncated: bool = False
    problem: str | None = None
    shown_bytes: int = 0


def read_page(fetched: FetchedRecords, window: OffsetWindow) -> RecordPage:
    """Return the records of a window. A batch that cannot be read ends the page with a problem."""
    page = RecordPage(next_offset=window.first)
    aborting = _Aborting(fetched.aborted)
    for position, header in iter_headers(fetched.records):
        if header.last_offset < window.first:
            continue
        if header.base_offset >= window.end or page.is_truncated:
            break
        try:
            if not crc_is_valid(fetched.records, position, header.size):
                raise MalformedBatch("the checksum is wrong")
            state = aborting.state(header, fetched.last_stable_offset)
            _add_batch(page, fetched.records, position, header, window, state)
        except (MalformedBatch, MalformedRecords) as error:
            page.problem = f"The batch at offset {header.base_offset} cannot be shown: {error}."
            page.next_offset = header.last_offset + 1
            break
        if not page.is_truncated:
            page.next_offset = min(header.last_offset + 1, window.end)
    return page


def _add_batch(
    page: RecordPage, records: Buffer, position: int, header: BatchHeader, window: OffsetWindow, state: str | None
) -> None:
    kind = "log append" if header.attributes & _LOG_APPEND_TIME else "create"
    codec = Codec(header.codec).name.lower()
    for record in iter_records(records, position, limit=DECOMPRESSED_MAX):
        if not window.first <= record.offset < window.end:
            continue
        size = _shown_bytes(record)
        is_full = page.shown_bytes > 0 and page.shown_bytes + size > PAGE_TEXT_BYTES_MAX
        if len(page.items) >= window.limit or is_full:
            page.is_truncated = True
            page.next_offset = record.offset
            return
        page.shown_bytes += size
        page.items.append(_item(record, header, kind, codec, state))


def _shown_bytes(record: FullRecord) -> int:
    headers = sum(
        min(len(name), HEADER_BYTES_MAX) + min(len(value or b""), HEADER_BYTES_MAX)
        for name, value in record.headers[:HEADERS_MAX]
    )
    return min(len(record.key or b""), TEXT_BYTES_MAX) + min(len(record.value or b""), TEXT_BYTES_MAX) + headers


def _item(record: FullRecord, header: BatchHeader, kind: str, codec: str, state: str | None) -> Json:
    key, value = record.key, record.value
    item: Json = {
        "offset": record.offset,
        "time_ms": record.timestamp,
        "timestamp_type": kind,
        "key": data_of(key),
        "value": data_of(value),
        "headers": [
            {"key": name[:HEADER_BYTES_MAX], "value": data_of(each, HEADER_BYTES_MAX)}
            for name, each in record.headers[:HEADERS_MAX]
        ],
        "headers_count": len(record.headers),
        "size_bytes": len(key or b"") + len(value or b""),
        "codec": codec,
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id if header.producer_id >= 0 else None,
        "is_control": header.is_control,
        "transaction": state,
    }
    if header.is_control:
        item["marker"] = _MARKERS.get(int.from_bytes((key or b"")[2:4], "big"), "unknown")
        item["key"] = item["value"] = None
    return item


def data_of(data: bytes | None, bytes_max: int = TEXT_BYTES_MAX) -> Json | None:
    """Return bytes as text where they are UTF-8, as hex, and as base64 where they are short."""
    if data is None:
        return None
    shown, is_cut = bytes(data[:bytes_max]), len(data) > bytes_max
    text = _text(shown, is_cut=is_cut)
    return {
        "size": len(data),
        "text": text,
        "json": text is not None and not is_cut and _is_json(text),
        "hex": shown[:HEX_BYTES_MAX].hex(),
        "base64": base64.b64encode(shown).decode() if text is None and len(data) <= HEX_BYTES_MAX else None,
        "cut": is_cut,
    }


def _text(data: bytes, *, is_cut: bool) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if is_cut and error.start >= len(data) - 3:  # a character that the limit cuts in two
            return data[: error.start].decode()
        return None


def _is_json(text: str) -> bool:
    if text[:1] not in "{[":
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


class _Aborting:
    """The aborted transactions, as a consumer of committed records follows them."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._first_offsets: defaultdict[int, list[int]] = defaultdict(list)
        for producer, first in sorted(aborted, key=lambda each: each[1], reverse=True):
            self._first_offsets[producer].append(first)

    def state(self, header: BatchHeader, last_stable_offset: int) -> str | None:
        """Return the state of a batch's transaction; None outside of transactions."""
        if not header.is_transactional:
            return None
        if header.base_offset >= last_stable_offset:
            return "open"
        pending = self._first_offsets.get(header.producer_id, [])
        if header.is_control:
            if pending and pending[-1] <= header.base_offset:
                pending.pop()
                return "aborted"
            return "committed"
        return "aborted" if pending and pending[-1] <= header.base_offset else "committed"
