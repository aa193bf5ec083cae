"""Requests about the states of several share partitions: one operation and one result each, side by side."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from broker.coordination.errors import response_error
from broker.coordination.share_partition_key import SharePartitionKey
from broker.runtime.coordinators.hosted_shard import Answer
from broker.share_state.shard import ShareStateRefusal
from protocol.errors import KafkaError
from protocol.primitives import Uuid


class IndexedPartition(Protocol):
    """A part of a request about one partition."""

    partition: int


P = TypeVar("P", bound=IndexedPartition)
V = TypeVar("V")
R = TypeVar("R")


async def each_share_partition(
    group_id: str,
    topics: Sequence[tuple[Uuid, Sequence[P]]],
    start: Callable[[SharePartitionKey, P], Answer[V]],
    result: Callable[[int, V], R],
    refused: Callable[[int, KafkaError], R],
) -> list[tuple[Uuid, list[R]]]:
    """Start the operation on all partitions; return the results by topic, in the order of the request.

    `result` makes a partition's result from the operation's answer, and `refused` from its KafkaError. Without group,
    or with a topic without partitions, there are no results, as in Kafka.
    """
    if not group_id or not all(partitions for _, partitions in topics):
        return []

    def started(topic_id: Uuid, asked: P) -> Answer[V] | KafkaError:
        try:
            return start(SharePartitionKey(group_id, topic_id, asked.partition), asked)
        except KafkaError as error:
            return error

    async def settled(asked: P, answer: Answer[V] | KafkaError) -> R:
        if isinstance(answer, KafkaError):
            return refused(asked.partition, _response_error(answer))
        try:
            return result(asked.partition, await answer if isinstance(answer, asyncio.Future) else answer)
        except KafkaError as error:
            return refused(asked.partition, _response_error(error))

    running = [(topic_id, [(each, started(topic_id, each)) for each in asked]) for topic_id, asked in topics]
    try:
        return [(topic_id, [await settled(*each) for each in answers]) for topic_id, answers in running]
    finally:
        for _, answers in running:
            for _, answer in answers:
                if isinstance(answer, asyncio.Future):
                    answer.cancel()  # the client is gone; a settled answer stays as it is


def _response_error(error: KafkaError) -> KafkaError:
    if isinstance(error, ShareStateRefusal):
        return error
    return KafkaError(response_error(error.code), error.message)
