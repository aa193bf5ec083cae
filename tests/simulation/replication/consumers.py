"""Consumers with Kafka's rules for leader epochs and truncation (KIP-320)."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from broker.runtime.replication.fetch_transport import Unanswered
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.messages.offset_for_leader_epoch import EpochEndOffset as EpochEndAnswer
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.records.batch import BatchHeader, iter_headers
from tests.simulation.replication.clients import AGAIN_ELSEWHERE, Client, ClientWitness, Cluster, Read
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.network import Outcome
from tests.simulation.replication.scenario import RACKS

FETCH_VERSION: Final = 16
EPOCH_VERSION: Final = 4
OFFSETS_VERSION: Final = 9
EARLIEST: Final = -2
_FETCH_WAIT_MS: Final = 200
_PAUSE_MS: Final = (1.0, 60.0)
_PREFERENCE_MS: Final = 3_000.0
"""Time after which a consumer asks the leader again for the replica to read from."""


class Consumer(Client):
    """Reads from its position, and validates the position with each new leader epoch (KIP-320). Its reset policy is
    `earliest`.
    """

    def __init__(
        self,
        cluster: Cluster,
        witness: ClientWitness,
        node_id: int,
        name: ReplicaName,
        random: Random,
        *,
        timeout_ms: float,
        rate: float,
    ) -> None:
        self._wait_ms = _FETCH_WAIT_MS
        super().__init__(cluster, node_id, name, random, timeout_ms=timeout_ms + self._wait_ms, rate=rate)
        self._witness = witness
        self.position = 0
        self._last_epoch = -1
        self._is_in_doubt = False
        self._life = 0
        """Number of deletions of the topic."""
        self._read: list[Read] = []
        self._rack = random.choice(("", *RACKS))
        self._preferred = -1
        """The replica to read from, by the leader's word (KIP-392); -1 for the leader."""
        self._preferred_until_ms = 0.0
        self.is_closed = False

    def slow_down(self, pace: float) -> None:
        super().slow_down(pace)
        self._timeout_ms -= self._wait_ms
        self._wait_ms = int(_FETCH_WAIT_MS * pace)
        self._timeout_ms += self._wait_ms

    def start(self) -> None:
        self.look()

    def close(self) -> None:
        self.is_closed = True

    @property
    def _id(self) -> int:
        return self.process.node_id

    def on_topic_deleted(self) -> None:
        """Begin anew; responses under way belong to the deleted topic."""
        self._life += 1
        self._read.clear()
        self.position, self._last_epoch, self._is_in_doubt, self._preferred = 0, -1, False, -1
        super().on_topic_deleted()

    def _of_this_life(self, done: Callable[[Outcome], None]) -> Callable[[Outcome], None]:
        """Return a handler that ignores responses about a deleted topic."""
        life = self._life
        return lambda outcome: done(outcome) if life == self._life else None

    def on_leader(self, *, is_new_epoch: bool) -> None:
        if (is_new_epoch or self._is_in_doubt) and self._last_epoch >= 0:
            self._validate()
        else:
            self._fetch()

    # Truncation

    def _validate(self) -> None:
        asked = OffsetForLeaderPartition(self.name.partition, self.leader_epoch, self._last_epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=self.name.topic, partitions=[asked])]
        )
        assert self.leader is not None
        self.ask(self.leader, request, EPOCH_VERSION, self._of_this_life(self._on_validated))

    def _on_validated(self, outcome: Outcome) -> None:
        if isinstance(outcome, Unanswered):
            self._find_anew()
            return
        (answer,) = outcome.topics[0].partitions
        assert isinstance(answer, EpochEndAnswer)
        if answer.error_code:
            self._find_anew()
            return
        self._is_in_doubt = False
        if answer.end_offset < 0:
            self._reset()
        elif answer.end_offset < self.position:
            self._go_back(answer.leader_epoch, answer.end_offset)
            self._fetch()
        else:
            self._fetch()

    def _find_anew(self) -> None:
        """Find the leader again, and validate the position even if the leader is the same."""
        self._is_in_doubt = True
        self.look()

    def _go_back(self, epoch: int, offset: int) -> None:
        """Reset to `offset`, where the logs diverge, or below if the records before it have a later epoch."""
        self._witness.on_truncation_noticed(self._id, self.name, self.position, offset)
        self._read = [read for read in self._read if read.end_offset <= offset and read.epoch <= epoch]
        self.position = offset
        self._last_epoch = epoch if offset else -1

    # Fetching

    def _fetch(self) -> None:
        if self.leader is None or self.is_closed:
            return
        if self.process.monotonic_ms() >= self._preferred_until_ms:
            self._preferred = -1
        source = self._preferred if self._preferred >= 0 else self.leader
        last_epoch = self._last_epoch if source == self.leader else -1  # a lagging follower seems to have diverged
        asked = FetchPartition(self.name.partition, self.leader_epoch, self.position, last_epoch, -1, 10_000)
        topic = FetchTopic(topic_id=self.cluster.topic_id(self.name.topic), partitions=[asked])
        request = FetchRequest(
            max_wait_ms=self._wait_ms,
            min_bytes=1,
            max_bytes=10_000,
            session_epoch=-1,
            topics=[topic],
            rack_id=self._rack,
        )
        self.ask(source, request, FETCH_VERSION, self._of_this_life(partial(self._on_fetched, source)))

    def _on_fetched(self, source: int, outcome: Outcome) -> None:
        is_follower = source == self._preferred
        if isinstance(outcome, Unanswered):
            self._preferred = -1
            self.look()
            return
        (data,) = outcome.responses[0].partitions
        code = ErrorCode(data.error_code)
        if code and is_follower:
            self._preferred = -1
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and is_follower:
            self._fetch()
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._reset()
        elif code in AGAIN_ELSEWHERE:
            self._find_anew()
        elif code in self.retried:
            self.later(self._fetch)
        elif code:
            raise AssertionError(f"a consumer got {code.name}")
        elif data.preferred_read_replica >= 0:
            self._preferred = data.preferred_read_replica
            self._preferred_until_ms = self.process.monotonic_ms() + self.pace * _PREFERENCE_MS
            self.later(self._fetch, _PAUSE_MS)
        else:
            if is_follower and data.records:
                self._witness.on_follower_read(self._id, self.name, source, data)
            self._take(data)

    def _take(self, data: PartitionData) -> None:
        if data.diverging_epoch.epoch >= 0:
            self._go_back(data.diverging_epoch.epoch, min(data.diverging_epoch.end_offset, self.position))
        elif data.records is not None:
            for _, header in iter_headers(memoryview(data.records)):
                if header.next_offset > self.position:
                    self._take_batch(header)
        self.later(self._fetch, _PAUSE_MS)

    def _take_batch(self, header: BatchHeader) -> None:
        last = self._read[-1] if self._read and self._read[-1].end_offset == header.base_offset else None
        self._witness.on_read(self._id, self.name, header, follows=last)
        self._read.append(Read(header))
        self.position, self._last_epoch = header.next_offset, header.leader_epoch

    # Out of range

    def _reset(self) -> None:
        asked = ListOffsetsPartition(self.name.partition, self.leader_epoch, EARLIEST)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=self.name.topic, partitions=[asked])])
        if self.leader is None:
            self.look()
            return
        self.ask(self.leader, request, OFFSETS_VERSION, self._of_this_life(self._on_start_known))

    def _on_start_known(self, outcome: Outcome) -> None:
        if isinstance(outcome, Unanswered):
            self.look()
            return
        (answer,) = outcome.topics[0].partitions
        assert isinstance(answer, ListOffsetsPartitionResponse)
        if answer.error_code:
            self._find_anew()
            return
        self._witness.on_out_of_range(self._id, self.name, self.position, answer.offset)
        self._read.clear()
        self.position, self._last_epoch = answer.offset, -1
        self._fetch()
