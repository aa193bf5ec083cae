"""Requests to the transaction coordinator, in every version: sessions, additions, verifications, ends and descriptions.

Markers are written after the response of EndTxn, so scenarios wait for the end of a transaction before they go on.
"""

import time
from collections.abc import Callable, Generator, Mapping

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages import Message
from protocol.messages import add_offsets_to_txn as ao
from protocol.messages import add_partitions_to_txn as ap
from protocol.messages import describe_transactions as dt
from protocol.messages import end_txn as et
from protocol.messages import find_coordinator as fc
from protocol.messages import init_producer_id as ip
from protocol.messages import list_transactions as lt
from tests.interop.wire.harness import TIMEOUT_S, WireHarness

Scenario = Generator[tuple[str, Message], Message | None, None]
Producer = tuple[int, int]

_NOT_READY = frozenset(
    (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
)
_ENDED = frozenset(("Empty", "CompleteCommit", "CompleteAbort"))
_TOPIC = "plain"
_BETWEEN_BROKERS = 4
_EPOCH_PER_TRANSACTION = 5
_TWO_PHASE_COMMIT = 6


def begin(harness: WireHarness, transactional_id: str) -> Producer:
    """Begin a session, outside of the scenario; create the coordinator's topic if need be."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        harness.call(fc.FindCoordinatorRequest("", 1, [transactional_id]), 4)
        answer = harness.call(ip.InitProducerIdRequest(transactional_id, 60_000), 5)
        assert isinstance(answer, ip.InitProducerIdResponse)
        if answer.error_code not in _NOT_READY:
            assert answer.error_code == 0, answer
            return answer.producer_id, answer.producer_epoch
        assert time.monotonic() < deadline, "the coordinator has not become ready"
        time.sleep(0.05)


def add(harness: WireHarness, transactional_id: str, producer: Producer) -> None:
    """Begin a transaction, outside of the scenario."""
    answer = harness.call(addition(3, transactional_id, producer, (_TOPIC, 0)), 3)
    assert isinstance(answer, ap.AddPartitionsToTxnResponse)
    assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0, answer


def wait_for_end(harness: WireHarness, transactional_id: str) -> None:
    """Wait until no transaction of the id is ongoing or prepared."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        answer = harness.call(dt.DescribeTransactionsRequest([transactional_id]), 0)
        assert isinstance(answer, dt.DescribeTransactionsResponse)
        if answer.transaction_states[0].transaction_state in _ENDED:
            return
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)


def addition(
    version: int, transactional_id: str, producer: Producer, *partitions: tuple[str, int], verify: bool = False
) -> ap.AddPartitionsToTxnRequest:
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    topics = [ap.AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in by_topic.items()]
    if version < _BETWEEN_BROKERS:
        return ap.AddPartitionsToTxnRequest([], transactional_id, *producer, topics)
    return ap.AddPartitionsToTxnRequest([ap.AddPartitionsToTxnTransaction(transactional_id, *producer, verify, topics)])


def init_producer_id(harness: WireHarness, version: int) -> Scenario:
    """Sessions of transactional ids; the scenario of idempotent producers is in `cases`."""
    name = f"init-{version}"

    def request(timeout: int = 60_000, producer: Producer = (-1, -1), transactional_id: str = name) -> Message:
        asked = ip.InitProducerIdRequest(transactional_id, timeout)
        if version >= 3:
            asked.producer_id, asked.producer_epoch = producer
        return asked

    producer = begin(harness, name)
    yield "transactional: another session", request()
    yield "transactional: no timeout", request(0)
    yield "transactional: a timeout of -1", request(-1)
    yield "transactional: the longest timeout", request(900_000)
    yield "transactional: too long a timeout", request(900_001)
    if version >= 3:
        producer_id = producer[0]
        yield "transactional: the present epoch", request(producer=(producer_id, producer[1] + 2))
        yield "transactional: the present epoch again", request(producer=(producer_id, producer[1] + 2))
        yield "transactional: a former epoch", request(producer=(producer_id, producer[1]))
        yield "transactional: a later epoch", request(producer=(producer_id, producer[1] + 9))
        yield "transactional: another producer", request(producer=(producer_id + 12345, 0))
        yield "transactional: an id without epoch", request(producer=(producer_id, -1))
        yield (
            "transactional: an unknown id with a producer",
            request(producer=(producer_id, 0), transactional_id=f"init-known-{version}"),
        )
    producer = begin(harness, name)
    add(harness, name, producer)
    yield "transactional: an ongoing transaction", request()
    wait_for_end(harness, name)
    yield "transactional: after its abort", request()
    if version >= _TWO_PHASE_COMMIT:
        yield from two_phase_commit(harness, version)


def two_phase_commit(harness: WireHarness, version: int) -> Scenario:
    """Sessions of producers whose outcome another coordinator decides (KIP-939)."""
    name = f"two-phase-{version}"

    def request(timeout: int = 60_000, *, keeps: bool = False, two_phase: bool = True, to: str = name) -> Message:
        return ip.InitProducerIdRequest(to, timeout, enable2_pc=two_phase, keep_prepared_txn=keeps)

    described = dt.DescribeTransactionsRequest([name])
    begin(harness, name)
    yield "two-phase commit: a session", request()
    yield "two-phase commit: described", described
    yield "two-phase commit: no timeout", request(0)
    yield "two-phase commit: a timeout of -1", request(-1)
    yield "two-phase commit: too long a timeout", request(900_001)
    yield "two-phase commit: an empty transactional id", request(to="")
    yield "two-phase commit: a prepared transaction is kept", request(keeps=True)
    yield "two-phase commit: kept, too long a timeout", request(900_001, keeps=True)
    yield "two-phase commit: kept without two phases", request(keeps=True, two_phase=False)
    yield "two-phase commit: the longest timeout without two phases", request(2**31 - 1, two_phase=False)
    yield "two-phase commit: an idempotent producer", ip.InitProducerIdRequest(None, 0, -1, -1, True, True)
    answer = harness.call(request(), version)
    assert isinstance(answer, ip.InitProducerIdResponse)
    producer = answer.producer_id, answer.producer_epoch
    add(harness, name, producer)
    yield "two-phase commit: an ongoing transaction, described", described
    yield "two-phase commit: an ongoing transaction, listed", lt.ListTransactionsRequest([], [producer[0]])
    yield "two-phase commit: an ongoing transaction is not kept", request(keeps=True)
    yield "two-phase commit: its end", et.EndTxnRequest(name, *producer, committed=True)
    wait_for_end(harness, name)
    yield "two-phase commit: committed, described", described
    answer = harness.call(request(), version)
    assert isinstance(answer, ip.InitProducerIdResponse)
    add(harness, name, (answer.producer_id, answer.producer_epoch))
    yield "two-phase commit: another session", request()
    wait_for_end(harness, name)
    yield "two-phase commit: aborted, described", described
    yield "two-phase commit: a session without", request(two_phase=False)
    yield "two-phase commit: described without", described


def add_partitions(harness: WireHarness, version: int) -> Scenario:
    name = f"add-{version}"
    producer = begin(harness, name)
    producer_id, epoch = producer

    def request(*partitions: tuple[str, int], by: Producer = producer, to: str = name, verify: bool = False) -> Message:
        return addition(version, to, by, *(partitions or ((_TOPIC, 0),)), verify=verify)

    if version >= _BETWEEN_BROKERS:
        yield "a verification before", request(verify=True)
    yield "one", request()
    yield "one again", request()
    yield "two more", request((_TOPIC, 1), (_TOPIC, 2))
    yield "an unknown one", request(("nowhere", 0))
    yield "an unknown one among others", request((_TOPIC, 3), ("nowhere", 0), (_TOPIC, 999))
    yield "an unknown transactional id", request(to=f"unknown-{version}")
    yield "an empty transactional id", request(to="")
    yield "another producer", request(by=(producer_id + 12345, epoch))
    yield "a later epoch", request(by=(producer_id, epoch + 1))
    yield "an older epoch", request(by=(producer_id, epoch - 1))
    if version >= _BETWEEN_BROKERS:
        yield "a verification", request((_TOPIC, 0), (_TOPIC, 1), (_TOPIC, 4), verify=True)
        yield "a verification of another producer", request(by=(producer_id + 12345, epoch), verify=True)
        yield "a verification of an older epoch", request(by=(producer_id, epoch - 1), verify=True)
        yield "a verification of an unknown transactional id", request(to=f"unknown-{version}", verify=True)


def add_offsets(harness: WireHarness, version: int) -> Scenario:
    name = f"offsets-{version}"
    producer_id, epoch = begin(harness, name)

    def request(to: str = name, producer: int = producer_id, at: int = epoch, group: str = "some-group") -> Message:
        return ao.AddOffsetsToTxnRequest(to, producer, at, group)

    yield "a group", request()
    yield "a group again", request()
    yield "an empty group", request(group="")
    yield "an unknown transactional id", request(f"unknown-{version}")
    yield "an empty transactional id", request("")
    yield "another producer", request(producer=producer_id + 12345)
    yield "a later epoch", request(at=epoch + 1)
    yield "an older epoch", request(at=epoch - 1)


def end_txn(harness: WireHarness, version: int) -> Scenario:
    name = f"end-{version}"
    producer = begin(harness, name)

    def request(*, commits: bool, by: Producer | None = None, to: str = name) -> Message:
        return et.EndTxnRequest(to, *(by or producer), commits)

    def following(answer: Message | None) -> Producer:
        assert isinstance(answer, et.EndTxnResponse)
        if version < _EPOCH_PER_TRANSACTION or answer.error_code:
            return producer
        return answer.producer_id, answer.producer_epoch

    yield "a commit of nothing", request(commits=True)
    producer = following((yield "an abort of nothing", request(commits=False)))
    wait_for_end(harness, name)
    for commits, done in ((True, "commit"), (False, "abort")):
        add(harness, name, producer)
        former = producer
        producer = following((yield f"a {done}", request(commits=commits)))
        wait_for_end(harness, name)
        yield f"a {done} again", request(commits=commits, by=former)
        yield f"the other outcome after a {done}", request(commits=not commits, by=former)
    add(harness, name, producer)
    yield "an unknown transactional id", request(commits=True, to=f"unknown-{version}")
    yield "an empty transactional id", request(commits=True, to="")
    yield "another producer", request(commits=True, by=(producer[0] + 12345, producer[1]))
    yield "a later epoch", request(commits=True, by=(producer[0], producer[1] + 1))
    yield "an older epoch", request(commits=True, by=(producer[0], producer[1] - 1))


def describe_transactions(harness: WireHarness, version: int) -> Scenario:
    producer = begin(harness, "described")
    yield "an empty one", dt.DescribeTransactionsRequest(["described"])
    add(harness, "described", producer)
    yield "an ongoing one", dt.DescribeTransactionsRequest(["described"])
    yield "an unknown one", dt.DescribeTransactionsRequest(["never"])
    yield "one without name", dt.DescribeTransactionsRequest([""])
    yield "several", dt.DescribeTransactionsRequest(["described", "never", "described"])
    yield "none", dt.DescribeTransactionsRequest([])
    harness.call(et.EndTxnRequest("described", *producer, True), 4)
    wait_for_end(harness, "described")
    yield "a committed one", dt.DescribeTransactionsRequest(["described"])


def list_transactions(harness: WireHarness, version: int) -> Scenario:
    producer = begin(harness, f"listed-{version}")
    add(harness, f"listed-{version}", producer)
    yield "by producer", lt.ListTransactionsRequest([], [producer[0]])
    yield "by an unknown producer", lt.ListTransactionsRequest([], [987654])
    yield "by state and producer", lt.ListTransactionsRequest(["Ongoing"], [producer[0]])
    yield "by another state", lt.ListTransactionsRequest(["PrepareCommit", "Dead"], [producer[0]])
    yield "by an unknown state", lt.ListTransactionsRequest(["Sleeping", "ongoing"], [producer[0]])
    if version >= 1:
        yield "by duration", lt.ListTransactionsRequest([], [producer[0]], 3_600_000)
        yield "by a negative duration", lt.ListTransactionsRequest([], [producer[0]], -5)
    if version >= 2:
        for pattern in (f"listed-{version}", "listed", "listed-.*", "", "(", "nothing"):
            yield f"by pattern {pattern!r}", lt.ListTransactionsRequest([], [producer[0]], -1, pattern)


TRANSACTION_SCENARIOS: Mapping[ApiKey, Callable[[WireHarness, int], Scenario]] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: add_offsets,
    ApiKey.END_TXN: end_txn,
    ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions,
    ApiKey.LIST_TRANSACTIONS: list_transactions,
}
