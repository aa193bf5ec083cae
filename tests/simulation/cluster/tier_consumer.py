"""A consumer of the tiered topic, which goes back to former positions: most of its records are in remote storage."""

from collections import deque
from functools import partial
from random import Random
from typing import Final, Protocol

from broker.runtime.replication.fetch_transport import Unanswered
from protocol.errors import ErrorCode
from protocol.messages.fetch import PartitionData
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.records.batch import BatchHeader, crc_is_valid, iter_headers
from tests.simulation.replication.clients import ClientWitness, Cluster
from tests.simulation.replication.consumers import OFFSETS_VERSION, Consumer
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.network import Outcome

_LOOKING_UP: Final = 0.5
"""Share of responses after which the consumer looks an offset up by time."""
_TIMES: Final = 500
_OWED: Final = 8
"""Number of times that are looked up after the faults."""
_FAILURES_MAX: Final = 16
"""Number of look-ups in a row that may time out after the faults: more time than readers wait at a hole."""
_OWED_AGAIN_S: Final = 0.05
_GOING_BACK: Final = 0.6
"""Share of responses after which the consumer goes back."""


class TieredWitness(ClientWitness, Protocol):
    """Checker of a tiered topic's consumer."""

    def on_skip(self, consumer: int, position: int, header: BatchHeader) -> None:
        """Check a batch that begins above the consumer's position."""
        ...

    def on_damaged(self, consumer: int, header: BatchHeader) -> None:
        """Report a batch whose checksum does not match."""
        ...

    def on_time_found(self, timestamp: int, offset: int, found_ms: int) -> None:
        """Check the first offset with at least a timestamp, and the timestamp of its record."""
        ...

    def on_time_missing(self, timestamp: int) -> None:
        """Report a timestamp whose look-ups time out long after the faults."""
        ...


class TieredConsumer(Consumer):
    """A consumer that goes back to a batch it has read, until the faults end."""

    retried = Consumer.retried | {ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.CORRUPT_MESSAGE}

    def __init__(
        self,
        cluster: Cluster,
        witness: TieredWitness,
        node_id: int,
        name: ReplicaName,
        random: Random,
        timeout_ms: float,
    ) -> None:
        super().__init__(cluster, witness, node_id, name, random, timeout_ms=timeout_ms, rate=1.0)
        self._tiered_witness = witness
        self._times: deque[int] = deque(maxlen=_TIMES)
        self.goes_back = True
        self._is_looking_up = False
        self._failed_look_ups = 0
        """Look-ups in a row that timed out after the faults."""
        self._owed: deque[int] = deque()
        """Timestamps that must be found after the faults."""

    @property
    def owes_look_ups(self) -> bool:
        """Whether a look-up by time is missing since `begin_again`."""
        return bool(self._owed)

    def begin_again(self) -> None:
        """Read everything once more, and look up times of all records that were read, also of those that are lost.

        Responses under way belong to former positions.
        """
        self.goes_back = False
        times = sorted(set(self._times))
        self._owed = deque(times[:: max(1, len(times) // _OWED)])
        self._look_up_owed()
        self._life += 1
        self._go_back_to(0)
        self.look()

    def _take(self, data: PartitionData) -> None:
        records = memoryview(data.records or b"")
        for position, header in iter_headers(records):
            if not crc_is_valid(records, position, header.size):
                self._tiered_witness.on_damaged(self._id, header)
        super()._take(data)
        if self._times and not self._is_looking_up and self.random.random() < _LOOKING_UP:
            self._look_up_time()
        if self.goes_back and self._read and self.random.random() < _GOING_BACK:
            self._go_back_to(int(len(self._read) * self.random.random() ** 2))

    def _take_batch(self, header: BatchHeader) -> None:
        self._times.append(header.max_timestamp)
        if header.base_offset > self.position:
            self._tiered_witness.on_skip(self._id, self.position, header)
        super()._take_batch(header)

    def _go_back_to(self, index: int) -> None:
        """Continue at the batch that was read at `index`.

        Behind a hole the epoch of the last record is unknown, as after a seek.
        """
        if index < len(self._read):
            self.position = self._read[index].base_offset
            self._read = self._read[:index]
            follows = bool(self._read) and self._read[-1].end_offset == self.position
            self._last_epoch = self._read[-1].epoch if follows else -1

    # Look-ups by time

    def _look_up_time(self) -> None:
        """Look up the time of a batch that was read, or one beside it."""
        if self.leader is None:
            return
        self._ask_time(self.leader, self.random.choice(self._times) + self.random.choice((-1, 0, 0, 1)))

    def _look_up_owed(self) -> None:
        """Look up what is owed, one time after another, until each has an answer."""
        if self._owed:
            if self.leader is not None and not self._is_looking_up:
                self._ask_time(self.leader, self._owed[0])
            self.process.call_later(_OWED_AGAIN_S, self._look_up_owed)

    def _ask_time(self, leader: int, timestamp: int) -> None:
        asked = ListOffsetsPartition(self.name.partition, self.leader_epoch, timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(self.name.topic, [asked])])
        self._is_looking_up = True
        self.ask(leader, request, OFFSETS_VERSION, partial(self._on_time_known, timestamp))

    def _on_time_known(self, timestamp: int, outcome: Outcome) -> None:
        self._is_looking_up = False
        if isinstance(outcome, Unanswered):
            return
        (answer,) = outcome.topics[0].partitions
        if not answer.error_code:
            self._failed_look_ups = 0
            if self._owed and self._owed[0] == timestamp:
                self._owed.popleft()
            self._tiered_witness.on_time_found(timestamp, answer.offset, answer.timestamp)
        elif answer.error_code == ErrorCode.REQUEST_TIMED_OUT and self._owed:
            self._failed_look_ups += 1
            if self._failed_look_ups > _FAILURES_MAX:
                self._tiered_witness.on_time_missing(timestamp)
