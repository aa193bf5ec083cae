"""Progress of long work: a bar or a counter on a terminal, nothing when standard error is a pipe or a file."""

import sys
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

T = TypeVar("T")

REFRESH_PER_S = 10
UPDATE_S = 0.05
"""Time between two updates of the bar: an update costs more than most units of work."""


class ProgressBar:
    """A context manager that shows how much of `total` is done; `total` None shows a count and the elapsed time.

    With `is_bytes`, the units are bytes. Lines that the command prints meanwhile appear above the bar. The bar
    disappears at the end, unless `stays` is set.
    """

    def __init__(self, subject: str, total: int | None = None, *, is_bytes: bool = False, stays: bool = False) -> None:
        self._subject = subject
        self._total = total
        self._is_bytes = is_bytes
        self._stays = stays
        self._bar: RichProgress | None = None
        self._done = 0
        self._update_at_s = 0.0

    def __enter__(self) -> "ProgressBar":
        if is_shown():
            self._bar = _bar(is_bounded=self._total is not None, is_bytes=self._is_bytes, stays=self._stays)
            self._task = self._bar.add_task(self._subject, total=self._total)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)
            self._bar.stop()

    def advance(self, count: int = 1) -> None:
        """Add to the number of units that are done."""
        self.reach(self._done + count)

    def reach(self, done: int) -> None:
        """Set the number of units that are done."""
        self._done = done
        if self._bar is not None and (now_s := time.monotonic()) >= self._update_at_s:
            self._bar.update(self._task, completed=done)
            self._update_at_s = now_s + UPDATE_S

    def show(self, subject: str) -> None:
        """Change the text in front of the bar."""
        if self._bar is not None:
            self._bar.update(self._task, description=subject)


def is_shown() -> bool:
    """Return whether progress is shown: standard error is a terminal."""
    return sys.stderr.isatty()


def _bar(*, is_bounded: bool, is_bytes: bool, stays: bool) -> "RichProgress":
    from rich import progress  # local import: commands without a terminal do not load rich
    from rich.console import Console

    counts: list[progress.ProgressColumn] = [progress.TextColumn("{task.completed:.0f}")]
    if is_bounded:
        done = progress.DownloadColumn(binary_units=True) if is_bytes else progress.MofNCompleteColumn()
        counts = [progress.BarColumn(), done, progress.TimeRemainingColumn()]
    return progress.Progress(
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}", markup=False),
        *counts,
        progress.TimeElapsedColumn(),
        console=Console(stderr=True, highlight=False),
        refresh_per_second=REFRESH_PER_S,
        redirect_stdout=sys.stdout.isatty(),  # a pipe must receive what the command prints
        transient=not stays,
    )


def with_progress(work: Iterable[T], subject: str, total: int | None = None) -> Iterator[T]:
    """Yield the items of `work` and count them."""
    with ProgressBar(subject, total) as progress:
        for each in work:
            yield each
            progress.advance()
