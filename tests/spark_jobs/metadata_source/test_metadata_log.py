"""The metadata log through a broker: requests, retries and refusals."""

import threading
from collections.abc import Iterator

import pytest

from broker.client import ConnectionLost
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import LeaderEpoch
from protocol.messages.fetch import FetchRequest
from spark_jobs.metadata_source.metadata_log import LogTrimmed, SnapshotName, SourceRefused
from spark_jobs.metadata_source.position import NO_EPOCH, InvalidPosition, MetadataPosition
from tests.spark_jobs.metadata_source.batches import batches
from tests.spark_jobs.metadata_source.conftest import ClientFactory
from tests.support.fakes.fake_broker import NODE_ID
from tests.support.fakes.served_metadata_log import ServedMetadataLog


@pytest.fixture
def served() -> Iterator[ServedMetadataLog]:
    with ServedMetadataLog(batches(3, 2, 4, epochs=[1, 1, 3])) as log:
        yield log


def test_client_reports_log_bounds_and_cluster_id(served: ServedMetadataLog, open_client: ClientFactory) -> None:
    log = open_client(served)
    assert (log.cluster_id, log.bounds()) == ("fake", (0, 9))


def test_fetch_returns_batches_from_the_one_with_the_offset(
    served: ServedMetadataLog, open_client: ClientFactory
) -> None:
    found = open_client(served).fetch(4, 1)
    assert [(header.base_offset, header.next_offset, header.leader_epoch) for header in found.headers()] == [(3, 5, 1)]
    assert found.high_watermark == 9


def test_incomplete_batch_is_left_out(served: ServedMetadataLog, open_client: ClientFactory) -> None:
    size = len(served.batches[0]) + len(served.batches[1]) + 10
    assert [header.next_offset for header in open_client(served).fetch(0, size).headers()] == [3, 5]


def test_fetch_at_the_log_end_is_empty(served: ServedMetadataLog, open_client: ClientFactory) -> None:
    log = open_client(served)
    assert log.batch_at(9) is None
    assert log.fetch(9, max_wait_ms=1).headers() == []


def test_new_records_end_the_wait(served: ServedMetadataLog, open_client: ClientFactory) -> None:
    served.grow(2)
    log = open_client(served)
    log.bounds()
    served.broker.requests.clear()

    def grow() -> None:
        served.broker.wait_for(FetchRequest, 1)
        served.grow(3)

    late = threading.Thread(target=grow)
    late.start()
    assert [header.base_offset for header in log.fetch(5, max_wait_ms=10_000).headers()] == [5]
    late.join()


def test_fetch_below_the_log_start_names_the_snapshot(served: ServedMetadataLog, open_client: ClientFactory) -> None:
    served.trim(2, b"snapshot")
    with pytest.raises(LogTrimmed) as caught:
        open_client(served).fetch(1)
    assert caught.value.snapshot == SnapshotName(5, 1)


def test_snapshot_is_read_page_by_page(served: ServedMetadataLog, open_client: ClientFactory) -> None:
    served.trim(2, bytes(range(250)))
    served.page_bytes = 100
    assert [len(page) for page in open_client(served).snapshot(SnapshotName(5, 1))] == [100, 100, 50]


def test_missing_snapshot_raises_snapshot_not_found(served: ServedMetadataLog, open_client: ClientFactory) -> None:
    with pytest.raises(KafkaError) as caught:
        list(open_client(served).snapshot(SnapshotName(5, 1)))
    assert caught.value.code is ErrorCode.SNAPSHOT_NOT_FOUND


def test_another_cluster_is_refused(served: ServedMetadataLog, open_client: ClientFactory) -> None:
    with pytest.raises(SourceRefused, match=r"to cluster mine, but the brokers belong to fake\.$"):
        open_client(served, "mine").bounds()


def test_brokers_that_do_not_serve_the_log_are_refused_with_a_reason(
    served: ServedMetadataLog, open_client: ClientFactory
) -> None:
    served.is_readable = False
    with pytest.raises(SourceRefused, match=r"ottla\.cluster\.metadata\.readable"):
        open_client(served).bounds()


@pytest.mark.parametrize(
    "position",
    [
        MetadataPosition(0, NO_EPOCH, "fake"),
        MetadataPosition(3, LeaderEpoch(1), "fake"),
        MetadataPosition(9, LeaderEpoch(3), "fake"),
    ],
)
def test_position_of_this_log_passes_the_check(
    served: ServedMetadataLog, open_client: ClientFactory, position: MetadataPosition
) -> None:
    open_client(served).check(position)


@pytest.mark.parametrize(
    "position",
    [
        MetadataPosition(6, LeaderEpoch(1), "fake"),
        MetadataPosition(9, LeaderEpoch(2), "fake"),
        MetadataPosition(12, LeaderEpoch(3), "fake"),
    ],
)
def test_recreated_log_is_refused(
    served: ServedMetadataLog, open_client: ClientFactory, position: MetadataPosition
) -> None:
    """Signs of a recreation: an epoch that ended earlier, an unknown epoch, an end before the position."""
    with pytest.raises(SourceRefused, match="was recreated or truncated since"):
        open_client(served).check(position)


def test_position_below_the_log_start_passes_the_check(served: ServedMetadataLog, open_client: ClientFactory) -> None:
    served.trim(2, b"")
    open_client(served).check(MetadataPosition(4, LeaderEpoch(1), "fake"))


def test_requests_are_retried_through_an_election(served: ServedMetadataLog, open_client: ClientFactory) -> None:
    served.leader = -1
    naps: list[int] = []

    def sleep(_seconds: float) -> None:
        naps.append(len(naps))
        served.leader = NODE_ID if len(naps) == 3 else -1

    log = open_client(served, sleep=sleep)
    assert (log.bounds().end, len(naps)) == (9, 3)


def test_lost_connection_is_reopened(served: ServedMetadataLog, open_client: ClientFactory) -> None:
    log = open_client(served)
    log.bounds()
    served.broker.hang_up()
    assert (log.bounds().end, log.contacts) == (9, 2)


def test_unreachable_cluster_fails_the_first_request(open_client: ClientFactory) -> None:
    with ServedMetadataLog([]) as stopped:
        log = open_client(stopped, is_patient=False)
    with pytest.raises(ConnectionLost):
        log.bounds()


def test_position_round_trips_through_json() -> None:
    position = MetadataPosition(5, LeaderEpoch(2), "x")
    assert MetadataPosition.from_json(position.to_json()) == position
    with pytest.raises(InvalidPosition):
        MetadataPosition.from_json({"offset": "5"})
