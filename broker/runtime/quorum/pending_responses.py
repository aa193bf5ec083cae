"""Requests that wait for the core's response, and the log reads that some responses need."""

from asyncio import Future
from dataclasses import replace
from functools import partial
from typing import assert_never

from broker.quorum.messages import FetchSnapshotResponse, Response
from broker.quorum.ready import PendingResponse, ReadRecords, ReadSnapshotPage, SendResponse
from broker.runtime.loop.waiters import Loop
from broker.runtime.quorum.guarded_calls import GuardedCalls
from broker.runtime.quorum.metadata_log import RaftMetadataLog, SnapshotNotFound
from protocol.errors import ErrorCode, KafkaError


class PendingResponses:
    """Futures of responses by token."""

    def __init__(self, log: RaftMetadataLog, loop: Loop, calls: GuardedCalls) -> None:
        self._log = log
        self._loop = loop
        self._calls = calls
        self._tokens = 0
        self._futures: dict[int, Future[Response]] = {}
        self._is_closed = False

    def new(self) -> "tuple[int, Future[Response]]":
        """Return a new token and the future of its response, which has failed already if this object is closed."""
        future: Future[Response] = self._loop.create_future()
        self._tokens += 1
        if self._is_closed:
            future.set_exception(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE))
        else:
            self._futures[self._tokens] = future
        return self._tokens, future

    def close(self) -> None:
        """Fail all futures with BROKER_NOT_AVAILABLE."""
        self._is_closed = True
        futures, self._futures = self._futures, {}
        for future in futures.values():
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE))

    def execute(self, pending: PendingResponse) -> None:
        """Complete a response, after reading the data that it needs."""
        future = self._futures.pop(pending.token, None)
        if future is None or future.done():  # the requester was cancelled
            return
        match pending:
            case SendResponse(_, response):
                future.set_result(response)
            case ReadRecords():
                self._read_records(future, pending)
            case ReadSnapshotPage():
                self._calls.reading(partial(self._read_page, pending), partial(_settle, future))
            case _:
                assert_never(pending)

    def _read_records(self, future: "Future[Response]", read: ReadRecords) -> None:
        """Read without copying: views stay valid after the log is truncated (`storage.files`)."""
        found = self._log.read(read.offset, read.max_bytes, self._log.log_end_offset)
        response = replace(read.response, records=found.data)
        if found.cold:
            self._calls.reading(partial(self._log.warm, found), lambda _: _settle(future, response))
        else:
            future.set_result(response)

    def _read_page(self, read: ReadSnapshotPage) -> FetchSnapshotResponse:
        """Read a page on the thread of snapshots."""
        response = read.response
        try:
            data = self._log.read_snapshot_page(response.snapshot_id, response.position, read.max_bytes)
        except SnapshotNotFound:  # deleted after the core responded
            return FetchSnapshotResponse(ErrorCode.SNAPSHOT_NOT_FOUND, response.leader)
        return replace(response, data=data)


def _settle(future: "Future[Response]", response: Response) -> None:
    if not future.done():
        future.set_result(response)
