"""Loading a snapshot into memory without blocking the loop: the IO thread reads chunks, records apply in slices."""

from asyncio import Future

from broker.metadata.snapshot.load import LoadedSnapshot, SnapshotLoad
from broker.runtime.loop.io_thread import BlockingIo
from broker.runtime.loop.runtime import Runtime
from broker.runtime.loop.sliced_work import SlicedSteps, SlicedWork
from broker.runtime.quorum.quorum import RawSnapshotReader


def load_in_slices(load: SnapshotLoad, reader: RawSnapshotReader, runtime: Runtime) -> "Future[LoadedSnapshot]":
    """Load the whole snapshot and close its reader. Cancelling the future stops the load.

    The future fails with the errors of `SnapshotLoad`, with storage's DamagedSnapshot, or with OSError.
    """
    return SlicedWork(_steps(load, reader, runtime.io), runtime.loop, runtime.clock, pauses=False).done


def _steps(load: SnapshotLoad, reader: RawSnapshotReader, io: BlockingIo) -> SlicedSteps[LoadedSnapshot]:
    try:
        reading = io.submit(reader.next_chunk)
        while True:
            yield reading
            chunk = reading.result()
            if not chunk:
                break
            reading = io.submit(reader.next_chunk)  # the IO thread reads while these records are applied
            yield from load.take(chunk)
    finally:
        io.submit(reader.close)
    return (yield from load.finish())
