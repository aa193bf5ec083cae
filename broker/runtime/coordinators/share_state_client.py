"""Requests of the group coordinator about states of share partitions, at their share coordinators (KIP-932).

Also asks the partitions' leaders where the partitions end, for the lag of a share group. A node asks itself over the
network like any other node, as Kafka does.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from broker.coordination.partitioner import partition_for
from broker.coordination.share_partition_key import SharePartitionKey
from broker.groups.share.states import (
    RETRIED_STATE_ERRORS,
    Answered,
    DeletionRequest,
    EndOffsetRequest,
    InitializationRequest,
    StateRequest,
    StateSummary,
    SummaryRequest,
)
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.topic_names import SHARE_STATE_TOPIC
from broker.net.peer import NetworkClient, Outcome, SocketAddress
from broker.runtime.loop.runtime import Runtime
from protocol.errors import ErrorCode

_FIRST_PAUSE_MS: Final = 100
_LONGEST_PAUSE_MS: Final = 1_000
_PATIENCE_MS: Final = 15_000
"""Time after which an unreachable coordinator is an error; about that of Kafka's five attempts."""

A = TypeVar("A")


class ShareStateClient:
    """Asks share coordinators and partition leaders.

    `image` returns the latest metadata, `listener` is that of requests between brokers. `create_topic` requests the
    creation of an internal topic without waiting for it.
    """

    def __init__(
        self,
        runtime: Runtime,
        peers: NetworkClient,
        image: Callable[[], MetadataImage],
        listener: str,
        timeout_ms: Callable[[], int],
        create_topic: Callable[[str], None],
    ) -> None:
        self._runtime = runtime
        self._peers = peers
        self._image = image
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._create_topic = create_topic

    def close(self) -> None:
        """Close the connections."""
        self._peers.close()

    async def initialize(
        self, start_offsets: Mapping[SharePartitionKey, int], state_epoch: int
    ) -> Mapping[SharePartitionKey, ErrorCode]:
        """Begin a state epoch of share partitions at these offsets; return the error of each, or NONE."""
        request = InitializationRequest(start_offsets, state_epoch)
        return _codes(await self._ask(list(start_offsets), request, self._coordinator_of))

    async def delete(self, keys: Sequence[SharePartitionKey]) -> Mapping[SharePartitionKey, ErrorCode]:
        """Delete states of share partitions; return the error of each, or NONE."""
        return _codes(await self._ask(keys, DeletionRequest(), self._coordinator_of))

    async def summaries(self, keys: Sequence[SharePartitionKey]) -> Mapping[SharePartitionKey, Answered[StateSummary]]:
        """Return the offsets of share partitions."""
        return await self._ask(keys, SummaryRequest(), self._coordinator_of)

    async def end_offsets(self, keys: Sequence[SharePartitionKey]) -> Mapping[SharePartitionKey, Answered[int]]:
        """Return the high watermark of the share partitions' partitions."""
        return await self._ask(keys, EndOffsetRequest(self._topic_name), self._leader_of)

    async def _ask(
        self,
        keys: Sequence[SharePartitionKey],
        request: StateRequest[A],
        place_of: Callable[[SharePartitionKey], SocketAddress | None],
    ) -> dict[SharePartitionKey, Answered[A]]:
        """Ask each place about its share partitions; again for a time, after errors that may pass."""
        began_ms = self._runtime.clock.monotonic_ms()
        pause_ms = _FIRST_PAUSE_MS
        answers: dict[SharePartitionKey, Answered[A]] = {}
        pending = list(keys)
        while pending:
            answers |= await self._ask_once(pending, request, place_of)
            pending = [key for key in pending if answers[key].error in RETRIED_STATE_ERRORS]
            if self._runtime.clock.monotonic_ms() - began_ms >= _PATIENCE_MS:
                break
            if pending:
                await self._pause(pause_ms)
                pause_ms = min(2 * pause_ms, _LONGEST_PAUSE_MS)
        return answers

    async def _ask_once(
        self,
        keys: Iterable[SharePartitionKey],
        request: StateRequest[A],
        place_of: Callable[[SharePartitionKey], SocketAddress | None],
    ) -> dict[SharePartitionKey, Answered[A]]:
        places: dict[SocketAddress, list[SharePartitionKey]] = {}
        answers: dict[SharePartitionKey, Answered[A]] = {}
        for key in keys:
            place = place_of(key)
            if place is None:
                answers[key] = Answered(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            else:
                places.setdefault(place, []).append(key)
        sent = [(asked, self._send(place, asked, request)) for place, asked in places.items()]
        for asked, future in sent:
            found = request.answers(asked, await future)
            answers |= {key: found.get(key, Answered(ErrorCode.UNKNOWN_SERVER_ERROR)) for key in asked}
        return answers

    def _send(
        self, place: SocketAddress, asked: list[SharePartitionKey], request: StateRequest[A]
    ) -> "asyncio.Future[Outcome]":
        future: asyncio.Future[Outcome] = self._runtime.loop.create_future()

        def deliver(outcome: Outcome) -> None:
            if not future.done():  # the client is gone
                future.set_result(outcome)

        self._peers.send(place, request.message(asked), deliver, timeout_ms=self._timeout_ms())
        return future

    def _pause(self, pause_ms: float) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = self._runtime.loop.create_future()

        def end() -> None:
            if not future.done():
                future.set_result(None)

        self._runtime.deadlines.after_ms(pause_ms, end)
        return future

    # Places.

    def _coordinator_of(self, key: SharePartitionKey) -> SocketAddress | None:
        """Return the address of the share coordinator; None without a live leader."""
        topic = self._image().topics.by_name(SHARE_STATE_TOPIC)
        if topic is None:
            self._create_topic(SHARE_STATE_TOPIC)
            return None
        state = topic.partition(partition_for(key.coordinator_key, topic.partition_count))
        return None if state is None else self._address_of(state.leader)

    def _leader_of(self, key: SharePartitionKey) -> SocketAddress | None:
        topic = self._image().topics.by_id(key.topic_id)
        state = None if topic is None else topic.partition(key.partition)
        return None if state is None else self._address_of(state.leader)

    def _address_of(self, broker_id: int) -> SocketAddress | None:
        broker = self._image().brokers.get(broker_id)
        if broker is None or broker.fenced or self._listener not in broker.endpoints:
            return None
        endpoint = broker.endpoints[self._listener]
        return SocketAddress(endpoint.host, endpoint.port)

    def _topic_name(self, key: SharePartitionKey) -> str:
        topic = self._image().topics.by_id(key.topic_id)
        return "" if topic is None else topic.name


def _codes(answers: Mapping[SharePartitionKey, Answered[None]]) -> dict[SharePartitionKey, ErrorCode]:
    return {key: answered.error for key, answered in answers.items()}
