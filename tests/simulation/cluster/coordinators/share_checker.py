"""Invariants of share partitions in the simulated cluster: those of the share plane, for every leader of a partition.

A share partition that is loaded again counts as another leader, also within one leader epoch.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NoReturn

from broker.runtime.share.led_share_partition import LedSharePartition
from broker.share.records import AcknowledgementBatch, AcquiredRecords
from protocol.errors import ErrorCode
from tests.simulation.share.checker import ShareChecker
from tests.simulation.simulator import Counts

_SLOWEST_CLOCK: Final = 0.9
"""The shortest lock in true time, as a share of its duration by the leader's clock."""
Fail = Callable[[str, str], None]


class ClusterShareChecker(ShareChecker):
    """The share plane's checker, which counts and fails through the common history.

    `newest_epoch` returns the committed leader epoch of the partition. `on_pruned` is called before a share coordinator
    deletes the records of a partition before an offset.
    """

    on_pruned: Callable[[int, int], None]

    def __init__(
        self, counts: Counts, now_ms: Callable[[], float], limit: int, newest_epoch: Callable[[], int], fail: Fail
    ) -> None:
        super().__init__(now_ms, limit)
        self.counts = counts
        self.failure: tuple[str, str] | None = None
        """A violation that was found in a task, which would hide it."""
        self._newest_epoch = newest_epoch
        self._fail = fail
        self._numbers: dict[LedSharePartition, int] = {}

    def fail(self, name: str, text: str) -> NoReturn:
        self.failure = self.failure or (name, text)
        raise _Failed

    def observe_led(self, led: LedSharePartition) -> None:
        """Check the start offset of a leader."""
        if led.error is ErrorCode.NONE and led.state is not None:
            with suppress(_Failed):
                self.observe(self.number_of(led), led.state)

    def raise_failure(self) -> None:
        """Report the first violation."""
        if self.failure is not None:
            self._fail(*self.failure)

    def number_of(self, led: LedSharePartition) -> int:
        """Return the number of a leader, in the order of their loads."""
        return self._numbers.setdefault(led, len(self._numbers))

    @property
    def highest_start(self) -> int:
        """The highest start offset of all leaders."""
        return max(self._starts.values(), default=0)

    def on_led_acquired(
        self, led: LedSharePartition, member_id: str, acquired: Sequence[AcquiredRecords], lock_ms: int
    ) -> None:
        """Check an acquisition."""
        until_ms = self._now_ms() + _SLOWEST_CLOCK * lock_ms
        is_deposed = self._newest_epoch() > led.leader_epoch
        with suppress(_Failed):
            self.on_acquired(self.number_of(led), member_id, acquired, until_ms, is_deposed=is_deposed)

    def on_led_acknowledged(
        self,
        led: LedSharePartition,
        member_id: str,
        start: int,
        batches: Sequence[AcknowledgementBatch],
        result: "ErrorCode | asyncio.Future[ErrorCode]",
    ) -> None:
        """Check an acknowledgement that the leader has taken."""
        if isinstance(result, ErrorCode) and result is not ErrorCode.NONE:
            return
        number = self.number_of(led)
        with suppress(_Failed):
            self.on_taken(number, member_id, start, batches)
        self.on_attempt(batches)

        def settle(done: "asyncio.Future[ErrorCode]") -> None:
            if not done.cancelled() and done.result() is ErrorCode.NONE:
                self.on_durable(number, batches)
            else:
                self.counts.add("failed acknowledgements")

        if not isinstance(result, ErrorCode):
            result.add_done_callback(settle)

    def on_led_released(
        self, led: LedSharePartition, member_id: str, result: "ErrorCode | asyncio.Future[ErrorCode]"
    ) -> None:
        """Note that a member's records are released, once that is persisted."""
        number = self.number_of(led)
        released = self.held_by(number, member_id)
        if isinstance(result, ErrorCode):
            self.on_released(number, member_id, released)
        else:
            result.add_done_callback(lambda _done: self.on_released(number, member_id, released))


class _Failed(Exception):
    """An invariant is violated; the checker reports it after the event."""
