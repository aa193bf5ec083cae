"""Parts of a micro-batch as rows, and the options of the source."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from broker.client import ClientConfig, ConnectionLost
from broker.metadata.image.metadata_image import EMPTY_IMAGE
from broker.metadata.snapshot.codec import image_batches
from protocol.ids import LeaderEpoch
from spark_jobs.metadata.log_rows import LOG_ROWS, MalformedLog
from spark_jobs.metadata_source.metadata_log import MetadataLogClient, SnapshotName, SourceRefused
from spark_jobs.metadata_source.plan import LogRange, Part, WholeSnapshot
from spark_jobs.metadata_source.position import MetadataPosition
from spark_jobs.metadata_source.reading import read_part, snapshot_rows
from spark_jobs.metadata_source.settings import CLIENT_PROPERTIES, MAX_WAIT, SourceSettings
from tests.spark_jobs.metadata_source.batches import batches
from tests.spark_jobs.metadata_source.conftest import ClientFactory
from tests.support.fakes.served_metadata_log import ServedMetadataLog

SNAPSHOT = b"".join(image_batches(EMPTY_IMAGE, None))


@pytest.fixture
def log(served: ServedMetadataLog, open_client: ClientFactory) -> MetadataLogClient:
    return open_client(served)


@pytest.fixture
def served() -> Iterator[ServedMetadataLog]:
    with ServedMetadataLog(batches(3, 2, 4, epochs=[1, 1, 3]), most=1) as log:
        yield log


def rows(log: MetadataLogClient, part: Part) -> list[dict[str, object]]:
    found: list[dict[str, object]] = pa.Table.from_batches(read_part(log, part), LOG_ROWS).to_pylist()
    return found


def test_range_may_start_and_end_within_batches(log: MetadataLogClient) -> None:
    found = rows(log, LogRange(2, 7))
    assert [row["offset"] for row in found] == [2, 3, 4, 5, 6]
    assert [row["epoch"] for row in found] == [1, 1, 1, 3, 3]
    assert [row["batch_end"] for row in found] == [3, 5, 5, 9, 9]


def test_snapshot_rows_have_the_snapshots_last_offset(served: ServedMetadataLog, log: MetadataLogClient) -> None:
    served.trim(2, SNAPSHOT)
    served.page_bytes = 50
    found = rows(log, WholeSnapshot(SnapshotName(5, 1)))
    assert {(row["offset"], row["batch_end"], row["origin"]) for row in found} == {(4, 5, 1)}
    assert all(row["is_control"] for row in found)


def test_committed_offset_missing_for_long_is_an_error(served: ServedMetadataLog, log: MetadataLogClient) -> None:
    served.grow(1)
    clock = iter(range(0, 1000, 40))
    with pytest.raises(ConnectionLost, match="no broker has the committed offset 3"):
        list(read_part(log, LogRange(0, 9), monotonic=lambda: next(clock)))


@pytest.mark.parametrize("size", [1, 7, 61, 1000])
def test_pieces_of_a_snapshot_may_have_any_size(size: int) -> None:
    pieces = [SNAPSHOT[at : at + size] for at in range(0, len(SNAPSHOT), size)]
    assert sum(len(batch) for batch in snapshot_rows(pieces, 5)) == 2


@pytest.mark.parametrize("broken", [SNAPSHOT[:-1], SNAPSHOT[:100], b"", SNAPSHOT + SNAPSHOT])
def test_incomplete_snapshot_is_refused(broken: bytes) -> None:
    with pytest.raises(MalformedLog):
        list(snapshot_rows([broken], 5))


def test_option_names_are_case_insensitive() -> None:
    options = {"KAFKA.bootstrap.servers": "h:1", "maxrowspertrigger": "7", "kafka.client.id": "me"}
    settings = SourceSettings.of(options)
    assert (settings.client.client_id, settings.max_rows, settings.starting) == ("me", 7, "earliest")
    options["startingOffset"] = '{"offset": 5, "epoch": 1, "clusterId": "x"}'
    assert SourceSettings.of(options).starting == MetadataPosition(5, LeaderEpoch(1), "x")


class RecordingProperties(dict[str, str]):
    """Properties that record the names looked up."""

    def __init__(self) -> None:
        super().__init__({"acks": "all"})  # empty properties would not be looked up
        self.requested_keys: set[str] = set()

    def get(self, key: str, default: str = "") -> str:  # type: ignore[override]  # every lookup has a default
        self.requested_keys.add(key)
        return default


def test_every_client_property_is_an_option() -> None:
    properties = RecordingProperties()
    ClientConfig.parse("h:1", properties)
    assert properties.requested_keys == CLIENT_PROPERTIES - {"bootstrap.servers", MAX_WAIT}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kafka.bootstrap.servers": "h:1", "maxRowsPerTrigger": "0"},
        {"kafka.bootstrap.servers": "h:1", "endingOffset": "x"},
        {"kafka.bootstrap.servers": "h:1", "startingOffset": "5"},
        {"kafka.bootstrap.servers": "h:1", "startingOffset": '{"offset": 5}'},
        {"kafka.bootstrap.servers": "h:no"},
    ],
)
def test_invalid_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(SourceRefused):
        SourceSettings.of(options)
