"""The options of the data source.

| option | meaning | |---|---| | `uri` | location of the segments: a directory or
`s3://bucket/key.prefix?endpoint=…&region=…&path-style=true` | | `topic` | a topic name, or several separated by commas
| | `topicPattern` | alternative: a regular expression for whole names | | `topicId` | the id, if the store has several
topics of one name; with several names, ids separated by commas | | `partitions` | such as `0,3`; all by default | |
`startingOffsets`, `endingOffsets` | a number or JSON, `{"0": 17}` or `{"orders": {"0": 17}}`; the end is exclusive | |
`startingTimestamp`, `endingTimestamp` | in ms since 1970; the end is exclusive | | `isolationLevel` | `read_committed`
(the default) or `read_uncommitted` | | `failOnDataLoss` | whether missing records are an error (the default), or are
skipped | | `maxPartitionBytes` | approximate size of a task (128 MiB): a segment is a task, larger segments are divided
| | `rsm.*` | any other setting of remote storage without its prefix, such as `rsm.encryption.key.pairs` |

Manifests tell compressed and encrypted segments. Encrypted ones need `rsm.encryption.key.pairs` and the two key files
of each pair on every executor; credentials other than those that boto3 finds are `rsm.storage.aws.*`; a prefix that
does not end in a slash is `rsm.key.prefix`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from protocol.primitives import Uuid, uuid_from_text
from spark_jobs.tiered_records.bounds import ANY_TOPIC, EVER, EVERYTHING, ReadBounds
from storage.tiered.loading.store_uri import StoreUri, StoreUriError, parse_store_uri

DEFAULT_MAX_PARTITION_BYTES: Final = 128 * 1024 * 1024
_SETTING: Final = "rsm."
_KEY_PAIRS: Final = "encryption.key.pairs"
_ISOLATION: Final = {"read_committed": True, "read_uncommitted": False}
_FLAGS: Final = {"true": True, "false": False}
_NAMES: Final = (
    "uri",
    "topic",
    "topicPattern",
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
    """An invalid option; the message is one sentence that names it."""


@dataclass(frozen=True, slots=True)
class Options:
    """The parsed options, which can be pickled. `storage_name` and `storage_settings` are arguments of
    `loading.remote_storage`; `directory` is the directory of objects, empty for a bucket. `topics` is empty with a
    `pattern`.
    """

    storage_name: str
    storage_settings: tuple[tuple[str, str], ...]
    directory: str
    topics: tuple[str, ...]
    pattern: str
    topic_ids: frozenset[Uuid]
    bounds: ReadBounds
    is_committed_only: bool
    may_miss: bool
    max_partition_bytes: int

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "Options":
        """Parse options, whose names are case-insensitive as everywhere in Spark. Raises InvalidOption."""
        reader = _Reader({name.lower(): value for name, value in given.items()})
        reader.refuse_unknown()
        place = reader.place()
        name, settings = _storage_settings(place)
        firsts, first = reader.offsets("startingOffsets", 0)
        ends, end = reader.offsets("endingOffsets", EVERYTHING)
        bounds = ReadBounds(
            partitions=reader.partitions(),
            first=first,
            end=end,
            firsts=firsts,
            ends=ends,
            from_ms=reader.number("startingTimestamp", EVER),
            to_ms=reader.number("endingTimestamp", EVERYTHING),
        )
        pattern = reader.pattern()
        return cls(
            storage_name=name,
            storage_settings=tuple(sorted((settings | reader.storage_settings()).items())),
            directory=place.directory,
            topics=() if pattern else reader.topics(),
            pattern=pattern,
            topic_ids=reader.topic_ids(),
            bounds=bounds,
            is_committed_only=reader.one_of("isolationLevel", "read_committed", _ISOLATION),
            may_miss=not reader.one_of("failOnDataLoss", "true", _FLAGS),
            max_partition_bytes=max(1, reader.number("maxPartitionBytes", DEFAULT_MAX_PARTITION_BYTES)),
        )

    def names(self, topic: str) -> bool:
        """Whether the options select a topic of that name."""
        return re.fullmatch(self.pattern, topic) is not None if self.pattern else topic in self.topics


class _Reader:
    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def refuse_unknown(self) -> None:
        known = {name.lower() for name in _NAMES} | {"path"}
        for name in self._given:
            if name not in known and not name.startswith(_SETTING):
                raise InvalidOption(f"{name} is not an option; the options are {', '.join(_NAMES)} and {_SETTING}*.")

    def required(self, name: str) -> str:
        value = self._given.get(name.lower(), "").strip()
        if not value:
            raise InvalidOption(f"{name} is required.")
        return value

    def place(self) -> StoreUri:
        uri = self._given.get("path") or self.required("uri")
        try:
            return parse_store_uri(uri)
        except StoreUriError as error:
            raise InvalidOption(f"uri: {error}.") from error

    def topics(self) -> tuple[str, ...]:
        """Parse the topic names, which contain no comma."""
        names = tuple(dict.fromkeys(name.strip() for name in self.required("topic").split(",")))
        if not all(names):
            raise InvalidOption("topic must be names separated by commas.")
        return names

    def pattern(self) -> str:
        """Return the pattern, empty without one."""
        text = self._given.get("topicpattern", "")
        try:
            re.compile(text)
        except re.error as error:
            raise InvalidOption(f"topicPattern={text} is not a regular expression: {error}.") from error
        if text and "topic" in self._given:
            raise InvalidOption("Either topic or topicPattern must be given, not both.")
        return text

    def topic_ids(self) -> frozenset[Uuid]:
        texts = self._given.get("topicid")
        return frozenset() if texts is None else frozenset(_topic_id(text.strip()) for text in texts.split(","))

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
            raise InvalidOption(f"partitions must be numbers separated by commas, not {text!r}.")
        return frozenset(map(int, numbers))

    def offsets(self, name: str, default: int) -> tuple[Mapping[tuple[str, int], int], int]:
        """Return (by topic and partition, for all)."""
        text = self._given.get(name.lower(), "").strip()
        if not text.startswith("{"):
            return {}, self.number(name, default)
        try:
            return dict(_parsed_offsets(json.loads(text))), default
        except (ValueError, TypeError, AttributeError) as error:
            example = 'JSON such as {"0": 17} or {"orders": {"0": 17}}'
            raise InvalidOption(f"{name} must be a number, or {example}, not {text!r}.") from error

    def storage_settings(self) -> dict[str, str]:
        """Return the settings. Spark passes names in lower case, but names of key pairs are case-sensitive."""
        begin = len(_SETTING)
        found = {name[begin:]: value for name, value in self._given.items() if name.startswith(_SETTING)}
        pairs = [pair.strip() for pair in found.get(_KEY_PAIRS, "").split(",")]
        return {_with_pair(name, pairs): value for name, value in found.items()}


def _topic_id(text: str) -> Uuid:
    try:
        return uuid_from_text(text)
    except ValueError as error:
        raise InvalidOption(f"topicId={text} is not a topic id.") from error


def _parsed_offsets(offsets: dict[str, Any]) -> Iterator[tuple[tuple[str, int], int]]:
    """Yield ((topic, partition), offset). Raises ValueError, TypeError, AttributeError."""
    for name, value in offsets.items():
        if isinstance(value, dict):
            yield from (((name, int(partition)), int(offset)) for partition, offset in value.items())
        else:
            yield (ANY_TOPIC, int(name)), int(value)


def _with_pair(name: str, pairs: Sequence[str]) -> str:
    """Return a setting's name with the key pair's name in its original case."""
    for pair in pairs:
        begin = f"{_KEY_PAIRS}.{pair}."
        if name.lower().startswith(begin.lower()):
            return begin + name[len(begin) :]
    return name


def _storage_settings(place: StoreUri) -> tuple[str, dict[str, str]]:
    """Return storage settings without a cache, because segments are read once and in order."""
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
