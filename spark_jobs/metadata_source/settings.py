"""The options of the data source.

`kafka.bootstrap.servers` and any other `kafka.*` are client properties, as in Spark's Kafka connector. `startingOffset`
is `earliest`, `latest`, or a position as JSON, and applies without a checkpoint. `endingOffset` is the end of a batch:
later records are ignored. `maxRowsPerTrigger` and `maxBytesPerTrigger` limit a micro-batch, `maxPartitions` the tasks
that read one.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.client import CLIENT_PROPERTIES as HONOURED
from broker.client import ClientConfig, ClientError
from spark_jobs.metadata_source.metadata_log import SourceRefused
from spark_jobs.metadata_source.position import InvalidPosition, MetadataPosition

CLIENT_PREFIX: Final = "kafka."
BOOTSTRAP: Final = "kafka.bootstrap.servers"
STARTING_OFFSET: Final = "startingOffset"
ENDING_OFFSET: Final = "endingOffset"
MAX_ROWS: Final = "maxRowsPerTrigger"
MAX_BYTES: Final = "maxBytesPerTrigger"
MAX_PARTITIONS: Final = "maxPartitions"

MAX_WAIT: Final = "fetch.max.wait.ms"
CLIENT_PROPERTIES: Final = HONOURED | {"bootstrap.servers", MAX_WAIT}
"""The client properties that have an effect, or an option of their own."""

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

DEFAULT_MAX_ROWS: Final = 2_000_000
"""A micro-batch of this many rows takes some 200 MB in all executors together."""
DEFAULT_MAX_PARTITIONS: Final = 8
DEFAULT_MAX_WAIT_MS: Final = 500
"""Kafka's fetch.max.wait.ms: the wait at the end of the log per request."""


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The parsed options, which can be pickled. `starting` is None for the beginning of the log."""

    client: ClientConfig
    starting: MetadataPosition | str
    ending_offset: int | None
    max_rows: int | None
    max_bytes: int | None
    max_partitions: int
    max_wait_ms: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "SourceSettings":
        """Parse options, whose names are case-insensitive as everywhere in Spark. Raises SourceRefused."""
        given = {name.lower(): value for name, value in options.items()}
        prefix = CLIENT_PREFIX
        properties = {name[len(prefix) :]: value for name, value in given.items() if name.startswith(prefix)}
        try:
            client = ClientConfig.parse(given.get(BOOTSTRAP, ""), properties)
        except ClientError as error:
            raise SourceRefused(str(error)) from error
        max_bytes = _positive(given, MAX_BYTES, None)
        return cls(
            client=client,
            starting=_starting(given.get(STARTING_OFFSET.lower(), EARLIEST)),
            ending_offset=_positive(given, ENDING_OFFSET, None),
            max_rows=_positive(given, MAX_ROWS, DEFAULT_MAX_ROWS if max_bytes is None else None),
            max_bytes=max_bytes,
            max_partitions=_positive(given, MAX_PARTITIONS, None) or DEFAULT_MAX_PARTITIONS,
            max_wait_ms=_positive(given, CLIENT_PREFIX + MAX_WAIT, None) or DEFAULT_MAX_WAIT_MS,
        )


def _starting(text: str) -> MetadataPosition | str:
    if text in (EARLIEST, LATEST):
        return text
    try:
        return MetadataPosition.from_json(json.loads(text))
    except (InvalidPosition, ValueError, AttributeError) as error:
        raise SourceRefused(f"{STARTING_OFFSET} is neither {EARLIEST} nor {LATEST} nor a position: {error}.") from error


def _positive(given: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return default
    if not text.strip().isdigit() or int(text) == 0:
        raise SourceRefused(f"{name} must be a positive number, not {text!r}.")
    return int(text)
