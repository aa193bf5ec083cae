"""Random producers whose leader appends a batch and is replaced before its response arrives.

The producer goes on at the new leader, and repeats the batch when its request has timed out. By then the new leader has
more later batches than it remembers of a producer (`CACHED_BATCHES`), so it answers DUPLICATE_SEQUENCE_NUMBER. The
faults have a random source of their own: histories without them stay as they are.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from storage.producer_state import CACHED_BATCHES
from tests.simulation.replication.disk import ReplicaName
from tests.simulation.replication.producers import Producer
from tests.simulation.replication.simulation import ReplicationSimulator

_SHARE: Final = 0.25
"""Share of the histories with such producers."""
_EVERY_MS: Final = 1_000.0
_AGAIN_MS: Final = 40.0
"""Pause until the next try after the producer was busy."""
_TIMEOUT_MS: Final = 4_000.0
"""Time for which the producer waits for a response."""
_MOVE_MS: Final = 30.0
"""Mean time until the leader moves: the batch is replicated by then, or not."""
_BATCHES: Final = CACHED_BATCHES + 8


class LostResponses:
    """The lost responses of one history. `move` moves the leader of a partition."""

    def __init__(
        self,
        simulation: ReplicationSimulator,
        note: Callable[[str], None],
        move: Callable[[ReplicaName], None],
        produce: Callable[[Producer], None],
    ) -> None:
        self._simulation = simulation
        self._random = Random(f"lost answers {simulation.seed}")
        self._note = note
        self._move = move
        self._produce = produce
        self._is_over = False
        self._producer: Producer | None = None

    def begin(self) -> None:
        """Lose responses to one of the producers from time to time."""
        candidates = [each for each in self._simulation.producers if each.is_idempotent]
        if candidates and self._random.random() < _SHARE:
            self._producer = self._random.choice(candidates)
            self._producer.be_patient(_TIMEOUT_MS * self._simulation.scenario.pace)
            self._plan()

    def end(self) -> None:
        """Lose no more responses."""
        self._is_over = True

    def _plan(self) -> None:
        self._after(self._random.expovariate(1.0 / _EVERY_MS), self._lose_one)

    def _after(self, delay_ms: float, action: Callable[..., None], *args: object) -> None:
        self._simulation.world.schedule(delay_ms * self._simulation.scenario.pace, action, *args)

    def _lose_one(self) -> None:
        producer = self._producer
        if self._is_over or producer is None:
            return
        is_sent = False

        def send() -> None:
            nonlocal is_sent
            is_sent = producer.send_and_miss_answer()

        self._simulation.world.run(producer.process, send)
        if not is_sent:
            self._after(_AGAIN_MS, self._lose_one)
        else:
            self._plan()
            self._note(f"producer {producer.process.node_id} of {producer.name} misses the response to its next batch")
            self._after(self._random.expovariate(1.0 / _MOVE_MS), self._move, producer.name)
            for _ in range(_BATCHES):
                self._after(self._random.uniform(0.1, 0.9) * _TIMEOUT_MS, self._produce, producer)
