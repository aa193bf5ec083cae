"""Imports snapshots from a store for the quorum: does its steps on a thread of its own, and tells people of them.

What is refused is remembered, so that it is neither looked at nor complained of again; an object that is put anew is
another one. What is brought lies aside, in a file that means nothing after a crash, until the quorum takes it over or
ends the import. A store that hangs hangs its thread, and nobody else: the quorum's patience is in `EndImport`. One that
trickles is left as soon as it is behind, for the quorum counts on all of a snapshot to come.
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
from storage.errors import DamagedSnapshot, StorageError
from storage.log_snapshots import CheckpointId, SnapshotFiles, checkpoint_name
from storage.tiered.errors import ObjectStoreError, StoreUnavailable

MAX_REMEMBERED: Final = 1_000
"""Refusals; the oldest are forgotten first."""

T = TypeVar("T")
Done = Callable[[ImportOutcome], None]

_log: Final = EventLog("broker.snapshots")


class _Step:
    """What is under way for the quorum, if anything; `cancelled` is read by the thread."""

    def __init__(self, failed: ImportFound | ImportFailed, done: Done, brings: CheckpointId | None = None) -> None:
        """`failed` is what to say if nothing comes of it; `brings` what it leaves aside if it succeeds."""
        self.serial = failed.serial
        self.failed = failed
        self.done = done
        self.brings = brings
        self.is_over = False
        self.cancelled = Event()


class SnapshotImporter:
    """`perform` is called on the event loop; so is what it calls. `uri` is for people, without secrets."""

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
        """`pool` has one thread, so that steps come one after another."""
        self._store = store
        self._files = files
        self._uri = uri
        self._timeout_ms = timeout_ms
        self._pool = pool
        self._clock = clock
        self._refused: dict[StoredManifest, None] = {}
        self._told: dict[StoredManifest, None] = {}
        """Of what may be of use later."""
        self._found: FoundSnapshot | None = None
        self._step: _Step | None = None
        self._is_closed = False

    def perform(self, step: ImportStep, done: Done) -> None:
        """Begin a step; `done` is called once for FindImport and LoadImport, unless they are ended before."""
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
        """Tell nobody anything any more."""
        self._is_closed = True
        if self._step is not None:
            self._step.cancelled.set()
        self._store.close()

    # Finding

    def _find(self, find: FindImport, done: Done) -> None:
        step = self._step = _Step(ImportFound(find.serial, None), done)
        told: list[tuple[StoredManifest, str]] = []
        refused = frozenset(self._refused)
        work = partial(
            self._store.find, find.least, find.most, find.epoch, refused, lambda *refusal: told.append(refusal)
        )
        self._submit(step, work, lambda future: self._on_found(find, step, future, told))

    def _on_found(
        self,
        find: FindImport,
        step: _Step,
        future: "Future[FoundSnapshot | None]",
        told: list[tuple[StoredManifest, str]],
    ) -> None:
        for offer, reason in told:
            self._refuse(offer, reason, is_for_good=offer.end_offset <= find.most and offer.epoch <= find.epoch)
        self._found = self._result(future)
        manifest = None if self._found is None else self._found.manifest
        if manifest is None:
            step.done(ImportFound(step.serial, None))
        else:
            found = SnapshotId(manifest.end_offset, manifest.epoch)
            step.done(ImportFound(step.serial, found, manifest.size))

    # Loading

    def _load(self, load: LoadImport, done: Done) -> None:
        found = self._found
        assert found is not None, "only what was found is loaded"
        id = CheckpointId(*load.snapshot_id)
        step = self._step = _Step(ImportFailed(load.serial, is_refused=False), done, id)
        _log.info("Importing a metadata snapshot", file=found.manifest.file, bytes=found.manifest.size, uri=self._uri)
        work = partial(self._bring, found, id, step.cancelled)
        self._submit(step, work, lambda future: self._on_loaded(found, step, future))

    def _bring(self, found: FoundSnapshot, id: CheckpointId, cancelled: Event) -> None:
        """On the thread. Everything is aside and synced, or nothing is."""
        if not self._files.has_room_for(found.manifest.size):
            raise OSError(ENOSPC, f"{found.manifest.file} does not leave enough room on this node's disk")
        writer, began_ms = self._files.begin_import(id), self._clock.monotonic_ms()

        def is_unwanted() -> bool:
            took_ms = self._clock.monotonic_ms() - began_ms
            if took_ms > allowed_ms(self._timeout_ms, writer.size):
                raise StoreUnavailable(f"it brought {writer.size} bytes in {took_ms:.0f} ms")
            return cancelled.is_set()

        try:
            self._store.load(found.manifest, writer, is_unwanted)
            writer.leave()
            self._check_aside(id)
        except BaseException:
            writer.abandon()
            raise

    def _check_aside(self, id: CheckpointId) -> None:
        """Once it is in place, a start would go by it, whatever it says: so nothing may be wrong with its voters."""
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
            self._refuse(found.offer, str(error), is_for_good=True)
            step.done(ImportFailed(step.serial, is_refused=True))
        else:
            self._result(future)
            step.done(step.failed)

    # Refusing

    def _refuse_found(self, refusal: RefuseImport) -> None:
        found = self._found
        if found is not None and (found.offer.end_offset, found.offer.epoch) == refusal.snapshot_id:
            self._refuse(found.offer, refusal.reason, is_for_good=True)

    def _refuse(self, offer: StoredManifest, reason: str, *, is_for_good: bool) -> None:
        """Tell people once."""
        if offer not in self._refused and offer not in self._told:
            file = checkpoint_name(CheckpointId(offer.end_offset, offer.epoch))
            _log.warning("A metadata snapshot is refused", file=file, reason=reason, uri=self._uri)
        known = self._refused if is_for_good else self._told
        known[offer] = None
        if len(known) > MAX_REMEMBERED:
            del known[next(iter(known))]

    # Ending

    def on_adopted(self, snapshot_id: SnapshotId, *, is_whole: bool) -> None:
        """The quorum took over what was loaded; it is in place, or it was no good after all."""
        self._step = None
        if is_whole:
            file = checkpoint_name(CheckpointId(*snapshot_id))
            _log.info("A metadata snapshot was imported", file=file, uri=self._uri)
        elif self._found is not None:
            self._refuse(self._found.offer, "it was damaged on this node's disk", is_for_good=True)

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
                "The store of metadata snapshots is too slow, the leader is asked instead",
                uri=self._uri,
                timeout_ms=self._timeout_ms,
            )

    def _discard(self, step: _Step) -> None:
        """What was brought for nothing; before the thread brings anything else."""
        brought = step.brings
        if brought is not None:
            with suppress(PoolFull):  # then it stays until the next start
                discarded = self._pool.submit(lambda: self._files.discard_part(brought, is_imported=True))
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
            _log.warning("The store of metadata snapshots still hangs, the leader is asked instead", uri=self._uri)
            step.done(step.failed)

    def _result(self, future: "Future[T]") -> T | None:
        """None for what a store, a disk or an end may bring about."""
        if future.cancelled():
            return None
        error = future.exception()
        if error is None:
            return future.result()
        if isinstance(error, ObjectStoreError | StorageError | OSError):
            _log.warning(
                "The store of metadata snapshots cannot be used, the leader is asked instead",
                uri=self._uri,
                reason=str(error),
            )
        elif not isinstance(error, Cancelled):
            raise error
        return None
