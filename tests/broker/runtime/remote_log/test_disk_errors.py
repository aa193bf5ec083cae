"""Errors of the local disk while segments are copied: the log directory goes offline, as after any other IO error."""

import errno

from storage.segment import INDEX_SUFFIX, LOG_SUFFIX
from storage.tiered.errors import RemoteStorageError, RetriableRemoteStorageError
from storage.tiered.segment_metadata import RemoteSegment
from tests.broker.runtime.remote_log.test_manager import Faults, a_while, staged
from tests.support.fakes.shared_remote_storage import Fault, Operation, SharedRemoteStorage
from tests.support.harnesses.remote_log_harness import Broker, Bucket


@staged
async def test_read_error_takes_the_log_directory_offline() -> None:
    bucket = Bucket()
    broker = Broker(bucket).start()
    replica = broker.lead(0)
    broker.fs.fail("read", errno.EIO, path_part=LOG_SUFFIX)
    broker.fill(2)
    await a_while()
    [failure] = replica.failures
    assert failure.cause.errno == errno.EIO
    assert replica.log.failure is not None
    assert bucket.orphans() == set()
    await broker.stop()


@staged
async def test_error_of_an_index_takes_the_log_directory_offline() -> None:
    bucket = Bucket()
    broker = Broker(bucket).start()
    replica = broker.lead(0)
    broker.fill(1)
    broker.fs.fail("open", errno.EIO, path_part=INDEX_SUFFIX)
    await a_while()
    assert [failure.cause.errno for failure in replica.failures] == [errno.EIO]
    await broker.stop()


class WrappingStorage(SharedRemoteStorage):
    """Remote storage of a plug-in that replaces all errors by its own."""

    def copy_segment(self, segment: RemoteSegment, files: object) -> bytes | None:
        try:
            return super().copy_segment(segment, files)  # type: ignore[arg-type]
        except OSError:
            raise RemoteStorageError("the copy failed") from None


@staged
async def test_read_error_that_a_plugin_wraps_is_an_error_of_the_disk() -> None:
    bucket = Bucket()
    broker = Broker(bucket, storage=WrappingStorage()).start()
    replica = broker.lead(0)
    broker.fs.fail("read", errno.EIO, path_part=LOG_SUFFIX)
    broker.fill(1)
    await a_while()
    assert [failure.cause.errno for failure in replica.failures] == [errno.EIO]
    await broker.stop()


@staged
async def test_errors_of_the_store_leave_the_log_directory_online() -> None:
    bucket = Bucket()
    bucket.storage.fault = faults = Faults()
    errors = (OSError(errno.EIO, "the bucket's disk"), RetriableRemoteStorageError("down"), TimeoutError("slow"))
    for error in errors:
        faults.left.append(("copy", Fault(error)))
    broker = Broker(bucket).start()
    replica = broker.lead(0)
    broker.fill(1)
    await a_while(30)
    assert (replica.failures, bucket.ranges()) == ([], [(0, 9)])
    await broker.stop()


@staged
async def test_file_of_a_segment_deleted_during_the_copy_is_no_disk_error() -> None:
    """DeleteRecords removes the segment between the start of the copy and its first read."""
    bucket = Bucket()
    broker = Broker(bucket).start()
    replica = broker.lead(0)
    broker.fill(2)
    has_deleted = False

    def delete(operation: Operation, segment: RemoteSegment) -> Fault | None:
        nonlocal has_deleted
        if operation == "copy" and not has_deleted:
            has_deleted = True
            replica.log.maybe_increment_log_start_offset(10)
            broker.retain()
            for path in [name for name in broker.fs.list(replica.log.directory) if "0000000000." in name]:
                broker.fs.remove(f"{replica.log.directory}/{path}")
        return None

    bucket.storage.fault = delete
    await a_while(20)
    assert has_deleted
    assert (replica.failures, bucket.ranges()) == ([], [(10, 19)])
    await broker.stop()
