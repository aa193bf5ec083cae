"""Equivalence of the straight path of a fetch and the general path: the same history gives the same response bytes.

With the straight path turned off, no session continues by positions alone, and no read counts as ordinary.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.build_form import COMPILED, build_form
from broker.fetch.sessions import FetchSessions
from broker.runtime.partitions import partition_reads
from protocol.compiler import encode_bytes
from protocol.ids import LeaderEpoch
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from storage.config import LogConfig
from tests.support.harnesses.data_plane import Answer, DataPlane

pytestmark = pytest.mark.skipif(build_form() == COMPILED, reason="compiled callers do not see a path turned off")

PARTITIONS = 3
VERSION = 17
FOLLOWER = 2


class Step(NamedTuple):
    """A change of a partition, or a fetch. `number` selects among the variants of the action."""

    action: str
    partition: int
    number: int


class Reader:
    """A broker, and one reader with a session: a follower, or a consumer of an isolation level."""

    def __init__(self, *, follower: bool, committed: bool) -> None:
        self.node = DataPlane()
        self.node.register_broker(FOLLOWER)
        self.identity = self.node.create_topic(
            "t", PARTITIONS, replicas=(1, FOLLOWER), config=LogConfig(segment_bytes=400)
        )
        self._handler = self.node.fetch_handler()
        self._state = ReplicaState(FOLLOWER, 1) if follower else ReplicaState()
        self._isolation = int(committed)
        self._session = (0, 0)
        self._offsets = [0] * PARTITIONS

    def take(self, step: Step) -> bytes:
        """Apply a step; return the bytes of the response to a fetch, and nothing for a change."""
        node, index, number = self.node, step.partition, step.number
        partition = node.partition("t", index)
        match step.action:
            case "produce" if partition.is_leader:
                node.produce(*[b"v"] * (number % 3 + 1), index=index)
            case "commit" if partition.is_leader:
                node.change_isr(self.identity, 1, index=index)
                node.clock.advance_ms(30_001)
                partition.configure(partition.log.config)
            case "trim" if partition.is_leader:
                partition.record_deletion.delete_records(number % (partition.log.high_watermark + 1))
            case "elect":
                node.elect(self.identity, 1 + number % 2, index=index)
            case "fetch":
                return self._fetch(index, number)
        node.loop.run_soon()
        return b""

    def _fetch(self, index: int, number: int) -> bytes:
        """Move two partitions to their ends, or one to some offset, or none; with stale and unknown epochs, too."""
        ends = [self.node.partition("t", each).log.log_end_offset for each in range(PARTITIONS)]
        if number % 3 == 0:
            named = [index, (index + 1) % PARTITIONS]
            self._offsets = [ends[i] if i in named else offset for i, offset in enumerate(self._offsets)]
        else:
            named = [index] if number % 3 == 1 else []
            self._offsets[index] = number % (ends[index] + 2)
        if self._session[1] == 0:
            named = list(range(PARTITIONS))
        epoch = self.node.partition("t", index).leader_epoch
        targets = [
            FetchPartition(
                each,
                LeaderEpoch((epoch, -1, number - 4)[number % 3 if number > 6 else 0]),
                self._offsets[each],
                (epoch, -1)[number % 2],
                0,
                (1_000_000, 100)[number % 2],
            )
            for each in named
        ]
        request = FetchRequest(
            replica_state=self._state,
            isolation_level=self._isolation,
            min_bytes=1,
            max_wait_ms=500 * (number % 2),
            max_bytes=(1_000_000, 150)[number % 4 == 3],
            session_id=self._session[0],
            session_epoch=self._session[1],
            topics=[FetchTopic(topic_id=self.identity, partitions=targets)],
            forgotten_topics_data=[ForgottenTopic(topic_id=self.identity, partitions=[index])] if number == 11 else [],
        )
        answer = Answer(self._handler(request, self.node.context(VERSION)))
        if answer.is_waiting:
            self.take(Step("produce", index, 0))
        self.node.advance_ms(500)
        response = answer.value
        self._session = (response.session_id, self._session[1] + 1) if response.session_id else (0, 0)
        return encode_bytes(response, VERSION)


@contextmanager
def straight_path_is_off() -> Iterator[None]:
    def unusual(*_arguments: object, **_named: object) -> None:
        return None

    with patch.object(FetchSessions, "advance", unusual), patch.object(partition_reads, "read_straight", unusual):
        yield


STEPS = st.builds(
    Step,
    st.sampled_from(["produce", "produce", "commit", "trim", "elect", "fetch", "fetch", "fetch", "fetch"]),
    st.integers(0, PARTITIONS - 1),
    st.integers(0, 11),
)


@given(st.booleans(), st.booleans(), st.lists(STEPS, max_size=30))
def test_both_paths_give_the_same_response_bytes(follower: bool, committed: bool, steps: list[Step]) -> None:
    reader = Reader(follower=follower, committed=committed)
    with straight_path_is_off():
        general = Reader(follower=follower, committed=committed)
    for step in steps:
        taken = reader.take(step)
        with straight_path_is_off():
            assert general.take(step) == taken, step


def test_second_fetch_of_a_session_takes_the_straight_path() -> None:
    reader = Reader(follower=False, committed=False)
    advance, read_straight = FetchSessions.advance, partition_reads.read_straight
    with (
        patch.object(FetchSessions, "advance", autospec=True, side_effect=advance) as continued,
        patch.object(partition_reads, "read_straight", autospec=True, side_effect=read_straight) as read,
    ):
        for step in (Step("produce", 0, 1), Step("commit", 0, 0), Step("fetch", 0, 4), Step("fetch", 0, 4)):
            reader.take(step)
    assert continued.call_count == 1
    assert read.call_count >= PARTITIONS
