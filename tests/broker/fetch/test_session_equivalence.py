"""Equivalence of a fetch session that rests idle partitions and a reference that reads all partitions every time.

The reference follows KIP-227 literally: read all partitions, list partitions with records, changed offsets or
errors, and move partitions with records to the end. After any change of the partitions, both must return the same.
"""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tests.support.harnesses.data_plane import Answer, DataPlane

PARTITIONS = 3


class Listed(NamedTuple):
    """The relevant fields of a partition in a response."""

    partition: int
    error: int
    high_watermark: int
    log_start: int
    records: bytes


def listed(entry: PartitionData) -> Listed:
    return Listed(
        entry.partition_index,
        entry.error_code,
        entry.high_watermark,
        entry.log_start_offset,
        bytes(entry.records or b""),
    )


class Pair:
    """A reader with a session, and a reference reader without one."""

    def __init__(self) -> None:
        self.node = DataPlane()
        self.identity = self.node.create_topic("t", PARTITIONS, replicas=(1, 2))
        node = self.node
        self.handler = node.fetch_handler()
        self.positions = dict.fromkeys(range(PARTITIONS), 0)  # in the order of reading
        self.sent: dict[int, tuple[int, int]] = {}
        first = self._fetch([self._at(index) for index in self.positions], session=(0, 0))
        self.session_id, self.epoch = first.session_id, 1
        for entry in first.responses[0].partitions:
            self.sent[entry.partition_index] = (entry.high_watermark, entry.log_start_offset)

    def _at(self, index: int) -> FetchPartition:
        return FetchPartition(index, -1, self.positions[index], partition_max_bytes=100_000)

    def _fetch(self, partitions: list[FetchPartition], session: tuple[int, int]) -> FetchResponse:
        topics = [FetchTopic("t", partitions=partitions)] if partitions else []
        request = FetchRequest(
            min_bytes=1, session_id=session[0], session_epoch=session[1], topics=topics, max_bytes=1_000_000
        )
        return Answer(self.handler(request, self.node.context(12))).value

    def fetch(self, moved: dict[int, int]) -> tuple[list[Listed], list[Listed]]:
        """Send one incremental request that moves some positions; return both readers' results."""
        self.positions.update(moved)
        answer = self._fetch([self._at(index) for index in moved], (self.session_id, self.epoch))
        self.epoch += 1
        actual = [listed(entry) for topic in answer.responses for entry in topic.partitions]
        return actual, self._reference()

    def _reference(self) -> list[Listed]:
        everything = self._fetch([self._at(index) for index in self.positions], (0, -1))
        news = []
        for entry in map(listed, everything.responses[0].partitions):
            marks = (entry.high_watermark, entry.log_start)
            if entry.records or entry.error or self.sent[entry.partition] != marks:
                news.append(entry)
            self.sent[entry.partition] = (-1, entry.log_start) if entry.error else marks
        for entry in news:
            if entry.records:
                self.positions[entry.partition] = self.positions.pop(entry.partition)
        return news


def act(pair: Pair, action: str, index: int, number: int) -> None:
    """Change a partition: its log, its replicas or its leadership."""
    node = pair.node
    partition = node.partition("t", index)
    match action:
        case "produce" if partition.is_leader:
            node.produce(*[b"v"] * (number % 3 + 1), index=index)
        case "follow" if partition.is_leader:  # commits all records of the log
            node.change_isr(pair.identity, 1, index=index)
            node.clock.advance_ms(30_001)
            partition.configure(partition.log.config)
        case "trim" if partition.is_leader:
            partition.record_deletion.delete_records(number % (partition.log.high_watermark + 1))
        case "elect":
            node.elect(pair.identity, 1 + number % 2, index=index)
        case _:
            return
    node.loop.run_soon()


def moves(pair: Pair, index: int, number: int) -> dict[int, int]:
    """Return the reader's moves: none, to any offset, or to the high watermark."""
    if number % 4 == 0:
        return {}
    if number % 4 == 1:
        return {index: number}
    return {each: pair.node.partition("t", each).log.high_watermark for each in (index, (index + 1) % PARTITIONS)}


ACTIONS = st.tuples(
    st.sampled_from(["produce", "produce", "follow", "trim", "elect", "fetch", "fetch", "fetch"]),
    st.integers(0, PARTITIONS - 1),
    st.integers(0, 8),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(ACTIONS, min_size=20, max_size=60))
def test_resting_partitions_do_not_change_responses(actions: list[tuple[str, int, int]]) -> None:
    pair = Pair()
    for action, index, number in actions:
        if action == "fetch":
            actual, expected = pair.fetch(moves(pair, index, number))
            assert actual == expected
        else:
            act(pair, action, index, number)
    actual, expected = pair.fetch({})
    assert actual == expected
