"""Loads a snapshot into memory without holding up the loop: chunks from the IO thread, records folded in slices."""

from asyncio import Future

from broker.clock import Clock
from broker.metadata.snapshot.load import LoadedSnapshot, SnapshotLoad
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.loop.sliced_work import SlicedSteps, SlicedWork
from broker.runtime.loop.waiters import Loop
from broker.runtime.quorum.quorum import RawSnapshotReader


def load_in_slices(
    load: SnapshotLoad, reader: RawSnapshotReader, *, loop: Loop, clock: Clock, io: BlockingIo
) -> "Future[LoadedSnapshot]":
    """Read the whole snapshot and close its reader. Cancelling the future stops it.

    The future fails as `SnapshotLoad` says, with storage's DamagedSnapshot, or with OSError.
    """
    return SlicedWork(_steps(load, reader, io), loop, clock, rests=False).done


def _steps(load: SnapshotLoad, reader: RawSnapshotReader, io: BlockingIo) -> SlicedSteps[LoadedSnapshot]:
    try:
        reading = io.submit(reader.next_chunk)
        while True:
            yield reading
            chunk = reading.result()
            if not chunk:
                break
            reading = io.submit(reader.next_chunk)  # while these records are folded
            yield from load.take(chunk)
    finally:
        io.submit(reader.close)
    return (yield from load.finish())
