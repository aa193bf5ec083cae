"""Share fetches of records that only remote storage holds, and share groups that start there (KIP-932, KIP-405)."""

import asyncio
from collections.abc import Callable

import pytest

from broker.coordination.share_partition_key import SharePartitionKey
from broker.fetch.share.rounds import SharedRecords, ShareFetchOptions, ShareFetchRounds
from broker.fetch.share.service import ShareFetchService
from broker.metrics.share import ShareFigures
from broker.runtime.share.led_share_partition import UNINITIALIZED_OFFSET, ShareServices
from broker.runtime.share.share_partitions import SharePartitions
from broker.share.partition import PersistedState, StateWrite
from broker.share.records import AcquireMode, ShareLimits
from broker.share.sessions import ShareFetchSession, ShareMember, ShareSession, ShareSessions
from broker.share.settings import OffsetReset, ResetTarget, ShareGroupSettings
from broker.share.state_requests import StateAnswer
from protocol.errors import ErrorCode
from storage.tiered.errors import RetriableRemoteStorageError
from tests.support.fakes.manual_loop import ManualLoop
from tests.support.harnesses.tiered_plane import TieredPlane

MEMBER = ShareMember("group", "member")
OPTIONS = ShareFetchOptions(500, 1, 1_000_000, 500, 500, AcquireMode.BATCH_OPTIMIZED)


class NewGroups:
    """A SharePersister whose groups have no state yet."""

    def __init__(self, loop: ManualLoop) -> None:
        self._loop = loop

    def read(self, key: SharePartitionKey, leader_epoch: int, done: Callable[[StateAnswer], None]) -> None:
        self._loop.call_soon(done, StateAnswer(ErrorCode.NONE, PersistedState(0, UNINITIALIZED_OFFSET)))

    def write(self, key: SharePartitionKey, write: StateWrite, done: Callable[[StateAnswer], None]) -> None:
        self._loop.call_soon(done, StateAnswer(ErrorCode.NONE))


class TieredShares:
    """A share group that reads the tiered topic `t` of a plane."""

    def __init__(self) -> None:
        self.plane = TieredPlane()
        self.plane.create_tiered_topic()
        self.reset = OffsetReset(ResetTarget.EARLIEST)
        services = ShareServices(
            self.plane.runtime,
            NewGroups(self.plane.loop),  # type: ignore[arg-type]
            lambda _: ShareGroupSettings(ShareLimits(5, 2_000), 30_000, False, self.reset),
            ShareFigures(),
        )
        self.shares = SharePartitions(services)
        self.shares.use_remote_offsets(self.plane.offsets)
        self.service = ShareFetchService(
            self.plane.partitions, self.shares, ShareSessions(10), self.plane.runtime, self.plane.reads
        )
        self._session: ShareSession | None = None
        self._connection = self.plane.context(2).connection

    def fetch(self, max_records: int = 500, max_wait_ms: int = 500) -> "asyncio.Future[ShareFetchRounds]":
        connection = self._connection
        key = (self.plane.partition().topic_id, 0)
        epoch = 0 if self._session is None else self._session.epoch
        session = self.service.open(
            ShareFetchSession(MEMBER, epoch, connection.connection_id, (key,), (), False), connection
        )
        assert isinstance(session, ShareSession)
        self._session = session
        options = OPTIONS._replace(max_records=max_records, max_wait_ms=max_wait_ms)
        future = self.service.fetch(session, options, lambda _: None)
        self.plane.loop.run_soon()
        return future

    def close(self) -> None:
        """Close the member's connection."""
        self._connection.closed()

    def load(self) -> None:
        """Load the share partition with a request that wants no records."""
        self.fetch(max_records=0)
        self.plane.settle()

    def acquired(self, future: "asyncio.Future[ShareFetchRounds]") -> list[int]:
        """Return the offsets of acquired records."""
        self.plane.settle()
        return [
            offset
            for shared in future.result().results.values()
            for each in shared.acquired
            for offset in range(each.first, each.last + 1)
        ]

    def result(self, future: "asyncio.Future[ShareFetchRounds]") -> SharedRecords:
        (result,) = future.result().results.values()
        return result


@pytest.fixture
def tiered() -> TieredShares:
    return TieredShares()


def test_members_receive_remote_records_and_then_local_ones(tiered: TieredShares) -> None:
    tiered.plane.make_remote(3, 3)
    tiered.plane.fill(2)
    assert tiered.acquired(tiered.fetch()) == [0, 1, 2]
    assert tiered.acquired(tiered.fetch(max_records=2)) == [3, 4]
    assert tiered.acquired(tiered.fetch()) == [5]
    assert tiered.acquired(tiered.fetch()) == [6, 7]


def test_request_waits_for_a_slow_store_beyond_its_own_time(tiered: TieredShares) -> None:
    tiered.plane.make_remote(3)
    tiered.plane.pool.is_held = True
    tiered.load()
    future = tiered.fetch(max_wait_ms=0)
    tiered.plane.settle(400)
    assert not future.done()
    tiered.plane.pool.is_held = False
    tiered.plane.pool.run_one()
    assert tiered.acquired(future) == [0, 1, 2]


def test_late_read_serves_the_next_request(tiered: TieredShares) -> None:
    tiered.plane.make_remote(3)
    tiered.plane.pool.is_held = True
    future = tiered.fetch()
    tiered.plane.settle(600)
    assert tiered.acquired(future) == []
    tiered.plane.pool.is_held = False
    tiered.plane.pool.run_one()
    tiered.plane.settle()
    assert tiered.acquired(tiered.fetch(max_wait_ms=0)) == [0, 1, 2]


def test_failing_store_is_an_error_when_the_time_is_over(tiered: TieredShares) -> None:
    tiered.plane.make_remote(3)
    storage = tiered.plane.storage
    storage.failures, storage.is_down = [RetriableRemoteStorageError("down")], True
    tiered.load()
    future = tiered.fetch()
    tiered.plane.settle(400)
    assert not future.done()
    tiered.plane.settle(200)
    assert tiered.result(future).error is ErrorCode.KAFKA_STORAGE_ERROR


def test_new_group_starts_at_a_time_in_remote_storage(tiered: TieredShares) -> None:
    tiered.plane.make_remote(3, 3)
    tiered.plane.fill(2)
    now_ms = tiered.plane.clock.now_ms()
    tiered.reset = OffsetReset(ResetTarget.BY_DURATION, now_ms - 4_000)
    future = tiered.fetch()
    tiered.plane.settle()
    assert tiered.acquired(future) == [4, 5]


def test_new_group_starts_at_the_end_where_no_record_is_late_enough(tiered: TieredShares) -> None:
    tiered.plane.make_remote(3)
    tiered.reset = OffsetReset(ResetTarget.BY_DURATION, 0)
    future = tiered.fetch()
    tiered.plane.settle()
    tiered.plane.fill(1)
    assert tiered.acquired(future) == [3]


def test_fetches_are_counted_until_the_group_has_no_session(tiered: TieredShares) -> None:
    tiered.plane.make_remote(3)
    tiered.load()
    tiered.acquired(tiered.fetch())
    future = tiered.fetch()
    tiered.plane.settle(600)
    assert tiered.acquired(future) == []
    figures = tiered.shares.services.figures
    assert figures.expired_fetches == 1
    values = {
        f"{family.name}{sample.suffix}": sample.value
        for family in figures.families(tiered.shares.figures)
        for sample in family.read()
    }
    assert values["kafka_server_sharegroupmetrics_requesttopicpartitionsfetchratio_count"] == 2
    assert values["kafka_server_sharegroupmetrics_requesttopicpartitionsfetchratio_sum"] == 100
    assert values["kafka_server_sharegroupmetrics_topicpartitionsacquiretimems_count"] == 1
    assert values["kafka_server_delayedsharefetchmetrics_expires_total"] == 1
    batches = values["kafka_server_sharepartitionmetrics_inflightbatchmessagecount_count"]
    assert (batches >= 1, values["kafka_server_sharepartitionmetrics_inflightbatchmessagecount_sum"]) == (True, 3)
    tiered.close()
    assert figures.fetches == {}
