"""The reaction to signals: an ordered or a forced stop."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Protocol


class Interrupted(KeyboardInterrupt):
    """A signal forced the stop; `exit_code` is the shell's exit code for it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class Stoppable(Protocol):
    """A job that can be stopped (`Job`). A run that does not tail ends by itself."""

    @property
    def is_tailing(self) -> bool: ...

    @property
    def is_stopping(self) -> bool: ...

    def stop(self) -> None: ...


@contextlib.contextmanager
def stopped_by_signals(job: Stoppable) -> Iterator[None]:
    """Stop a tail in order on the first signal. A second signal, or any signal to a run that does not tail, raises
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
