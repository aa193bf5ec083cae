"""Record batches of a partition as JSON for the reader of records. PURE; runs in a thread.

Limits keep a page small: the number of records, the bytes of a key or value that are shown, and the memory of a
decompressed batch.
"""

import base64
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.console.request import Json
from protocol.primitives import Buffer
from protocol.records.batch import BatchHeader, crc_is_valid, iter_headers
from protocol.records.compression import Codec
from protocol.records.errors import MalformedBatch, MalformedRecords
from protocol.records.reader import FullRecord, iter_records

TEXT_BYTES_MAX: Final = 64 * 1024
HEX_BYTES_MAX: Final = 4 * 1024
PAGE_TEXT_BYTES_MAX: Final = 2 * 1024 * 1024
DECOMPRESSED_MAX: Final = 32 * 1024 * 1024
_LOG_APPEND_TIME: Final = 0x08
_MARKERS: Final = {0: "abort", 1: "commit"}


@dataclass(frozen=True, slots=True)
class OffsetWindow:
    """The wanted records: offsets from `first` to below `end`, at most `limit`."""

    first: int
    end: int
    limit: int


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """A fetch response of one partition; `aborted` has (producer id, first offset) of aborted transactions."""

    records: Buffer
    last_stable_offset: int
    aborted: Sequence[tuple[int, int]] = ()


@dataclass(slots=True)
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
        if len(page.items) >= window.limit or page.shown_bytes > PAGE_TEXT_BYTES_MAX:
            page.is_truncated = True
            page.next_offset = record.offset
            return
        item = _item(record, header, kind, codec, state)
        page.shown_bytes += min(item["size_bytes"], 2 * TEXT_BYTES_MAX)
        page.items.append(item)


def _item(record: FullRecord, header: BatchHeader, kind: str, codec: str, state: str | None) -> Json:
    key, value = record.key, record.value
    item: Json = {
        "offset": record.offset,
        "time_ms": record.timestamp,
        "timestamp_type": kind,
        "key": data_of(key),
        "value": data_of(value),
        "headers": [{"key": name, "value": data_of(each)} for name, each in record.headers],
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


def data_of(data: bytes | None) -> Json | None:
    """Return bytes as text where they are UTF-8, as hex, and as base64 where they are short."""
    if data is None:
        return None
    shown = bytes(data[:TEXT_BYTES_MAX])
    text = _text(shown, is_cut=len(data) > TEXT_BYTES_MAX)
    return {
        "size": len(data),
        "text": text,
        "json": text is not None and len(data) <= TEXT_BYTES_MAX and _is_json(text),
        "hex": shown[:HEX_BYTES_MAX].hex(),
        "base64": base64.b64encode(shown).decode() if text is None and len(data) <= HEX_BYTES_MAX else None,
        "cut": len(data) > TEXT_BYTES_MAX,
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
