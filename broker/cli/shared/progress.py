"""Progress of long work: a bar or a counter on a terminal, nothing when standard error is a pipe or a file."""

import sys
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

T = TypeVar("T")

REFRESH_PER_S = 10


class ProgressBar:
    """A context manager that shows how much of `total` is done; `total` None shows a count and the elapsed time.

    Lines that the command prints meanwhile appear above the bar. The bar disappears at the end.
    """

    def __init__(self, subject: str, total: int | None = None) -> None:
        self._subject = subject
        self._total = total
        self._bar: RichProgress | None = None

    def __enter__(self) -> "ProgressBar":
        if sys.stderr.isatty():
            self._bar = _bar(self._total is not None)
            self._task = self._bar.add_task(self._subject, total=self._total)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, count: int = 1) -> None:
        """Add to what is done."""
        if self._bar is not None:
            self._bar.advance(self._task, count)

    def show(self, subject: str) -> None:
        """Change the text in front of the bar."""
        if self._bar is not None:
            self._bar.update(self._task, description=subject)


def _bar(is_bounded: bool) -> "RichProgress":
    from rich import progress  # local import: commands without a terminal do not load rich
    from rich.console import Console

    counts: list[progress.ProgressColumn] = [progress.TextColumn("{task.completed:.0f}")]
    if is_bounded:
        counts = [progress.BarColumn(), progress.MofNCompleteColumn(), progress.TimeRemainingColumn()]
    return progress.Progress(
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}", markup=False),
        *counts,
        progress.TimeElapsedColumn(),
        console=Console(stderr=True, highlight=False),
        refresh_per_second=REFRESH_PER_S,
        redirect_stdout=sys.stdout.isatty(),  # a pipe must receive what the command prints
        transient=True,
    )


def with_progress(work: Iterable[T], subject: str, total: int | None = None) -> Iterator[T]:
    """Yield the items of `work` and count them."""
    with ProgressBar(subject, total) as progress:
        for each in work:
            yield each
            progress.advance()
