"""The output of the job: a line per snapshot on stdout, the progress bar on a terminal, and the monitored figures."""

import json
import sys
from types import TracebackType

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from broker.metadata.snapshot.manifest import SnapshotManifest
from spark_jobs.metadata_snapshots.progress import JobProgress


class JobReport:
    """A context manager that removes the progress bar on exit."""

    def __init__(
        self, *, as_json: bool = False, is_shown: bool | None = None, progress: JobProgress | None = None
    ) -> None:
        """`is_shown`: whether to show progress; None shows it if stderr is a terminal. `progress` receives the facts
        that the HTTP listener shows.
        """
        self._as_json = as_json
        self._progress = progress or JobProgress()
        shown = sys.stderr.isatty() if is_shown is None else is_shown
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), disable=not shown, transient=True)
        self._task: TaskID | None = None

    def __enter__(self) -> "JobReport":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begins(self, what: str, offset: int, end: int | None) -> None:
        """Show the start of a fold from `offset` on, up to `end` if there is one."""
        self._progress.begins(offset)
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(what, total=end, completed=offset)

    def folded(self, offset: int) -> None:
        """Show that the fold has reached an offset."""
        self._progress.stepped(offset)
        if self._task is not None:
            self._bar.update(self._task, completed=offset)

    def retries(self, why: str) -> None:
        """Print on stderr, also for logs, that a failed action is retried."""
        self._progress.retried(why)
        self._bar.console.print(f"{why} Trying again.", highlight=False, markup=False, soft_wrap=True)

    def snapshot(self, manifest: SnapshotManifest, place: str, *, is_new: bool = True) -> None:
        """Report a complete snapshot."""
        if is_new:
            self._progress.wrote_snapshot()
        if self._as_json:
            click.echo(json.dumps(json.loads(manifest.to_json())))
            return
        verb = "wrote" if is_new else "kept"
        click.echo(
            f"{verb} {manifest.file}: {manifest.records} records, {manifest.size} bytes,"
            f" sha256 {manifest.sha256}, in {place}"
        )
