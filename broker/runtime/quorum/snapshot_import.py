"""Import of snapshots from an object store for the quorum, on a separate thread, with log messages for operators.

Refused manifests are remembered, so that they are neither read nor logged again; a new object of equal name is another
manifest. A loaded snapshot is in a temporary file, which the next start deletes, until the quorum installs it or ends
the import. A store that hangs blocks only the import thread; the quorum cancels by `EndImport`. A slow load is aborted
as soon as it exceeds its time limit.
"""

from asyncio import Future
from collections.abc import Callable
from contextlib import suppress
from errno import ENOSPC
from functools import partial
from threading import Event
from typing import Final, TypeVar

from broker.clock import Clock
from broker.logs import EventLog
from broker.quorum.control_history import ControlHistory, IncompatibleVoters
from broker.quorum.control_records import read_control_records
from broker.quorum.identity import SnapshotId
from broker.quorum.membership.voters import VoterSet
from broker.quorum.settings import ControlRecord
from broker.quorum.snapshots.imports import (
    EndImport,
    FindImport,
    ImportFailed,
    ImportFound,
    ImportLoaded,
    ImportOutcome,
    ImportStep,
    LoadImport,
    RefuseImport,
    allowed_ms,
)
from broker.runtime.loop.thread_pool import PoolFull, WorkPool
from broker.runtime.quorum.snapshot_store import (
    Cancelled,
    FoundSnapshot,
    SnapshotObjectStore,
    SnapshotRefused,
    StoredManifest,
)
from protocol.ids import LeaderEpoch, Offset
from storage.errors import DamagedSnapshot, StorageError
from storage.log_snapshots import CheckpointId, SnapshotFiles, checkpoint_name
from storage.tiered.errors import ObjectStoreError, StoreUnavailable

MAX_REMEMBERED: Final = 1_000
"""Remembered refusals; the oldest are removed first."""

T = TypeVar("T")
Done = Callable[[ImportOutcome], None]

_log: Final = EventLog("broker.snapshots")


class _Step:
    """An import step in progress. The thread reads `cancelled`."""

    def __init__(self, failed: ImportFound | ImportFailed, done: Done, loads: CheckpointId | None = None) -> None:
        """`failed` is the outcome of a failure; `loads` is the snapshot in the temporary file after success."""
        self.serial = failed.serial
        self.failed = failed
        self.done = done
        self.loads = loads
        self.is_over = False
        self.cancelled = Event()


class SnapshotImporter:
    """Implements SnapshotImports. Methods and callbacks run on the event loop. `uri` is for logs, without secrets."""

    def __init__(
        self,
        store: SnapshotObjectStore,
        files: SnapshotFiles,
        *,
        uri: str,
        timeout_ms: int,
        pool: WorkPool,
        clock: Clock,
    ) -> None:
        """`pool` has one thread, so that steps run one after the other."""
        self._store = store
        self._files = files
        self._uri = uri
        self._timeout_ms = timeout_ms
        self._pool = pool
        self._clock = clock
        self._refused: dict[StoredManifest, None] = {}
        self._logged: dict[StoredManifest, None] = {}
        """Logged manifests that a later step may use."""
        self._found: FoundSnapshot | None = None
        self._step: _Step | None = None
        self._is_closed = False

    def perform(self, step: ImportStep, done: Done) -> None:
        """Start a step; `done` is called once for FindImport and LoadImport, unless EndImport cancels them."""
        if self._is_closed:
            return
        match step:
            case FindImport():
                self._find(step, done)
            case LoadImport():
                self._load(step, done)
            case RefuseImport():
                self._refuse_found(step)
            case EndImport():
                self._end(step)

    def close(self) -> None:
        """Cancel the step in progress; no callback runs afterwards."""
        self._is_closed = True
        if self._step is not None:
            self._step.cancelled.set()
        self._store.close()

    # Finding

    def _find(self, find: FindImport, done: Done) -> None:
        step = self._step = _Step(ImportFound(find.serial, None), done)
        refusals: list[tuple[StoredManifest, str]] = []
        refused = frozenset(self._refused)
        work = partial(
            self._store.find, find.least, find.most, find.epoch, refused, lambda *refusal: refusals.append(refusal)
        )
        self._submit(step, work, lambda future: self._on_found(find, step, future, refusals))

    def _on_found(
        self,
        find: FindImport,
        step: _Step,
        future: "Future[FoundSnapshot | None]",
        refusals: list[tuple[StoredManifest, str]],
    ) -> None:
        for listed, reason in refusals:
            self._refuse(listed, reason, is_for_good=listed.end_offset <= find.most and listed.epoch <= find.epoch)
        self._found = self._result(future)
        manifest = None if self._found is None else self._found.manifest
        if manifest is None:
            step.done(ImportFound(step.serial, None))
        else:
            found = SnapshotId(Offset(manifest.end_offset), LeaderEpoch(manifest.epoch))
            step.done(ImportFound(step.serial, found, manifest.size))

    # Loading

    def _load(self, load: LoadImport, done: Done) -> None:
        found = self._found
        assert found is not None, "LoadImport follows ImportFound"
        id = CheckpointId(*load.snapshot_id)
        step = self._step = _Step(ImportFailed(load.serial, is_refused=False), done, id)
        _log.info("Importing a metadata snapshot", file=found.manifest.file, bytes=found.manifest.size, uri=self._uri)
        work = partial(self._load_file, found, id, step.cancelled)
        self._submit(step, work, lambda future: self._on_loaded(found, step, future))

    def _load_file(self, found: FoundSnapshot, id: CheckpointId, cancelled: Event) -> None:
        """Load the snapshot into a synced temporary file, or leave none. Runs on the thread."""
        if not self._files.has_room_for(found.manifest.size):
            raise OSError(ENOSPC, f"{found.manifest.file} does not fit on this node's disk")
        writer, began_ms = self._files.begin_import(id), self._clock.monotonic_ms()

        def is_cancelled() -> bool:
            took_ms = self._clock.monotonic_ms() - began_ms
            if took_ms > allowed_ms(self._timeout_ms, writer.size):
                raise StoreUnavailable(f"it returned {writer.size} bytes in {took_ms:.0f} ms")
            return cancelled.is_set()

        try:
            self._store.load(found.manifest, writer, is_cancelled)
            writer.leave()
            self._check_file(id)
        except BaseException:
            writer.abandon()
            raise

    def _check_file(self, id: CheckpointId) -> None:
        """Check the snapshot and its voters, because the next start would use the installed snapshot."""
        control: list[ControlRecord] = []

        def take(batch: memoryview) -> None:
            control.extend(read_control_records(batch, snapshot_offset=id.end_offset - 1))

        try:
            self._files.check_import(id, take)
            ControlHistory(VoterSet(), control)
        except (DamagedSnapshot, IncompatibleVoters) as error:
            raise SnapshotRefused(str(error)) from error

    def _on_loaded(self, found: FoundSnapshot, step: _Step, future: "Future[None]") -> None:
        error = future.exception()
        if error is None:
            step.done(ImportLoaded(step.serial, found.manifest.size))
        elif isinstance(error, SnapshotRefused):
            self._refuse(found.listed, str(error), is_for_good=True)
            step.done(ImportFailed(step.serial, is_refused=True))
        else:
            self._result(future)
            step.done(step.failed)

    # Refusing

    def _refuse_found(self, refusal: RefuseImport) -> None:
        found = self._found
        if found is not None and (found.listed.end_offset, found.listed.epoch) == refusal.snapshot_id:
            self._refuse(found.listed, refusal.reason, is_for_good=True)

    def _refuse(self, listed: StoredManifest, reason: str, *, is_for_good: bool) -> None:
        """Remember a refused manifest, and log it once. `is_for_good`: no later step can use it."""
        if listed not in self._refused and listed not in self._logged:
            file = checkpoint_name(CheckpointId(listed.end_offset, listed.epoch))
            _log.warning("A metadata snapshot is refused", file=file, reason=reason, uri=self._uri)
        known = self._refused if is_for_good else self._logged
        known[listed] = None
        if len(known) > MAX_REMEMBERED:
            del known[next(iter(known))]

    # Ending

    def on_adopted(self, snapshot_id: SnapshotId, *, is_whole: bool) -> None:
        """Complete the import after the quorum installed the snapshot, or found it invalid."""
        self._step = None
        if is_whole:
            file = checkpoint_name(CheckpointId(*snapshot_id))
            _log.info("A metadata snapshot was imported", file=file, uri=self._uri)
        elif self._found is not None:
            self._refuse(self._found.listed, "it was damaged on this node's disk", is_for_good=True)

    def _end(self, end: EndImport) -> None:
        step = self._step
        if step is None or step.serial != end.serial:
            return
        self._step = None
        step.cancelled.set()
        if step.is_over:
            self._discard(step)
        if end.is_late:
            _log.warning(
                "The store of metadata snapshots is too slow; fetching from the leader instead",
                uri=self._uri,
                timeout_ms=self._timeout_ms,
            )

    def _discard(self, step: _Step) -> None:
        """Delete the temporary file before the thread loads another snapshot."""
        loaded = step.loads
        if loaded is not None:
            with suppress(PoolFull):  # the next start deletes the file
                discarded = self._pool.submit(lambda: self._files.discard_part(loaded, is_imported=True))
                discarded.add_done_callback(self._result)

    def _submit(self, step: _Step, work: Callable[[], T], then: "Callable[[Future[T]], None]") -> None:
        def proceed(future: "Future[T]") -> None:
            if self._is_closed or future.cancelled():
                return
            step.is_over = True
            if self._step is step:
                then(future)
            elif future.exception() is None:
                self._discard(step)

        try:
            self._pool.submit(work).add_done_callback(proceed)
        except PoolFull:
            _log.warning("The store of metadata snapshots still hangs; fetching from the leader instead", uri=self._uri)
            step.done(step.failed)

    def _result(self, future: "Future[T]") -> T | None:
        """Return the result; None, with a log message, after an error of the store or the disk."""
        if future.cancelled():
            return None
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, ObjectStoreError | StorageError | OSError):
            _log.warning(
                "The store of metadata snapshots cannot be used; fetching from the leader instead",
                uri=self._uri,
                reason=str(error),
            )
        elif not isinstance(error, Cancelled):
            raise error
        return None
