"""The options of the data source, read once.

| option | meaning |
|---|---|
| `uri` | where segments are: a directory or `s3://bucket/key.prefix?endpoint=…&region=…&path-style=true` |
| `topic` | its name; `topicId` as well, if the store has several topics of that name |
| `partitions` | `0,3`; all, if absent |
| `startingOffsets`, `endingOffsets` | a number for all partitions, or JSON such as `{"0": 17}`; the end is excluded |
| `startingTimestamp`, `endingTimestamp` | in ms since 1970; the end is excluded |
| `isolationLevel` | `read_committed` (the default) or `read_uncommitted` |
| `failOnDataLoss` | whether a hole in what is wanted is an error (the default), or is passed over |
| `maxPartitionBytes` | what a task reads, more or less; larger segments are cut (128 MiB) |
| `rsm.*` | any other setting of remote storage without its prefix, such as `rsm.encryption.enabled` |
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from protocol.primitives import Uuid, uuid_from_text
from spark_jobs.tiered_records.bounds import EVERYTHING, Bounds
from storage.tiered.store_uri import StoreUri, StoreUriError, parse_store_uri

DEFAULT_MAX_PARTITION_BYTES: Final = 128 * 1024 * 1024
_SETTING: Final = "rsm."
_ISOLATION: Final = {"read_committed": True, "read_uncommitted": False}
_FLAGS: Final = {"true": True, "false": False}
_NAMES: Final = (
    "uri",
    "topic",
    "topicId",
    "partitions",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "isolationLevel",
    "failOnDataLoss",
    "maxPartitionBytes",
)


class InvalidOption(ValueError):
    """One sentence that names the option."""


@dataclass(frozen=True, slots=True)
class Options:
    """May be pickled. `storage_name` and `storage_settings` are those of `storage.tiered.loading`."""

    storage_name: str
    storage_settings: tuple[tuple[str, str], ...]
    topic: str
    topic_id: Uuid | None
    bounds: Bounds
    is_committed_only: bool
    may_miss: bool
    max_partition_bytes: int

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "Options":
        """Names are as good in any case, as everywhere in Spark. Raises InvalidOption."""
        reader = _Reader({name.lower(): value for name, value in given.items()})
        reader.refuse_unknown()
        place = reader.place()
        name, settings = _storage_settings(place)
        firsts, first = reader.offsets("startingOffsets", 0)
        ends, end = reader.offsets("endingOffsets", EVERYTHING)
        bounds = Bounds(
            reader.partitions(), first, end, firsts, ends,
            reader.number("startingTimestamp", -1), reader.number("endingTimestamp", EVERYTHING),
        )  # fmt: skip
        return cls(
            storage_name=name,
            storage_settings=tuple(sorted((settings | reader.storage_settings()).items())),
            topic=reader.required("topic"),
            topic_id=reader.topic_id(),
            bounds=bounds,
            is_committed_only=reader.one_of("isolationLevel", "read_committed", _ISOLATION),
            may_miss=not reader.one_of("failOnDataLoss", "true", _FLAGS),
            max_partition_bytes=max(1, reader.number("maxPartitionBytes", DEFAULT_MAX_PARTITION_BYTES)),
        )


class _Reader:
    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def refuse_unknown(self) -> None:
        known = {name.lower() for name in _NAMES} | {"path"}
        for name in self._given:
            if name not in known and not name.startswith(_SETTING):
                raise InvalidOption(f"{name} is no option; there are {', '.join(_NAMES)} and {_SETTING}*.")

    def required(self, name: str) -> str:
        value = self._given.get(name.lower(), "").strip()
        if not value:
            raise InvalidOption(f"{name} must be given.")
        return value

    def place(self) -> StoreUri:
        uri = self._given.get("path") or self.required("uri")
        try:
            return parse_store_uri(uri)
        except StoreUriError as error:
            raise InvalidOption(f"uri: {error}.") from error

    def topic_id(self) -> Uuid | None:
        text = self._given.get("topicid")
        try:
            return None if text is None else uuid_from_text(text)
        except ValueError as error:
            raise InvalidOption(f"topicId={text} is no id.") from error

    def number(self, name: str, default: int) -> int:
        text = self._given.get(name.lower())
        if text is None:
            return default
        if not text.strip().isdigit():
            raise InvalidOption(f"{name} must be a number, not {text!r}.")
        return int(text)

    def one_of(self, name: str, default: str, meanings: Mapping[str, bool]) -> bool:
        text = self._given.get(name.lower(), default).strip().lower()
        if text not in meanings:
            raise InvalidOption(f"{name} must be {' or '.join(meanings)}, not {text!r}.")
        return meanings[text]

    def partitions(self) -> frozenset[int] | None:
        text = self._given.get("partitions")
        if text is None:
            return None
        numbers = [part.strip() for part in text.split(",")]
        if not all(number.isdigit() for number in numbers):
            raise InvalidOption(f"partitions must be numbers with commas between them, not {text!r}.")
        return frozenset(map(int, numbers))

    def offsets(self, name: str, default: int) -> tuple[Mapping[int, int], int]:
        """(by partition, for all)."""
        text = self._given.get(name.lower(), "").strip()
        if not text.startswith("{"):
            return {}, self.number(name, default)
        try:
            found = {int(partition): int(offset) for partition, offset in json.loads(text).items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise InvalidOption(f'{name} must be a number, or JSON such as {{"0": 17}}, not {text!r}.') from error
        return found, default

    def storage_settings(self) -> dict[str, str]:
        begin = len(_SETTING)
        return {name[begin:]: value for name, value in self._given.items() if name.startswith(_SETTING)}


def _storage_settings(place: StoreUri) -> tuple[str, dict[str, str]]:
    """Segments are read in order and once: nothing is worth keeping."""
    settings = {"key.prefix": place.prefix, "fetch.chunk.cache.class": "none"}
    if place.directory:
        return "local", settings | {"storage.root": place.directory}
    bucket = {
        "storage.s3.bucket.name": place.bucket,
        "storage.s3.region": place.region,
        "storage.s3.endpoint.url": place.endpoint,
        "storage.s3.path.style.access.enabled": None
        if place.is_path_style is None
        else str(place.is_path_style).lower(),
    }
    return "s3", settings | {key: value for key, value in bucket.items() if value is not None}
