"""How signals end a job: in order, or by force."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Protocol


class Interrupted(KeyboardInterrupt):
    """By a signal; `exit_code` is what a shell would give for it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class Stoppable(Protocol):
    """`Job` is one. A run that does not tail ends by itself."""

    @property
    def is_tailing(self) -> bool: ...

    @property
    def is_stopping(self) -> bool: ...

    def stop(self) -> None: ...


@contextlib.contextmanager
def stopped_by_signals(job: Stoppable) -> Iterator[None]:
    """A tail ends in order. A second signal ends it at once, and so does one for a run that ends by itself, by way of
    Interrupted.
    """

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if job.is_tailing and not job.is_stopping:
            job.stop()
        else:
            raise Interrupted(number)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
