"""The Fetch requests of followers.

Messages have the shape of version 15 and later, with topic ids and the follower's broker epoch (KIP-516, KIP-903).
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from broker.replication.fetch_state import PartitionFetchState, PartitionKey
from protocol.ids import BrokerEpoch, BrokerId
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState

SESSIONLESS_EPOCH = -1


class FetcherSettings(NamedTuple):
    """`replica.fetch.wait.max.ms`, `.min.bytes`, `.max.bytes`, `.response.max.bytes`, `.backoff.ms`.

    `new_replicas_max` is the number of replicas that a request adds to its session. A leader handles a request in one
    turn of its event loop, and takes a fifth to a third of a millisecond for a replica that it sees for the first time.
    """

    wait_max_ms: int = 500
    min_bytes: int = 1
    partition_max_bytes: int = 1_048_576
    response_max_bytes: int = 10_485_760
    backoff_ms: int = 1_000
    new_replicas_max: int = 200


class Sender(NamedTuple):
    """The fetching broker: its id, and the epoch of its present registration."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


def fetch_request(
    sender: Sender,
    settings: FetcherSettings,
    asked: Iterable[PartitionFetchState[Any]],
    forgotten: Iterable[PartitionKey] = (),
    *,
    session_id: int = 0,
    session_epoch: int = SESSIONLESS_EPOCH,
    wait_ms: int,
) -> FetchRequest:
    """Return a request that names `asked` and removes `forgotten` from the session."""
    return FetchRequest(
        replica_state=ReplicaState(*sender),
        max_wait_ms=wait_ms,
        min_bytes=settings.min_bytes,
        max_bytes=settings.response_max_bytes,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=_topics(asked, settings.partition_max_bytes),
        forgotten_topics_data=_forgotten(forgotten),
    )


def _topics(asked: Iterable[PartitionFetchState[Any]], max_bytes: int) -> list[FetchTopic]:
    """Group the replicas by topic in the given order, the order of serving; a topic may appear more than once."""
    topics: list[FetchTopic] = []
    last_id: object = None
    for followed in asked:
        topic_id, index = followed.key
        if topic_id != last_id:
            last_id, partitions = topic_id, list[FetchPartition]()
            topics.append(FetchTopic(topic_id=topic_id, partitions=partitions))
        position = followed.position
        partitions.append(
            FetchPartition(
                index,
                followed.leader_epoch,
                position.offset,
                position.last_epoch,
                position.log_start_offset,
                max_bytes,
            )
        )
    return topics


def _forgotten(keys: Iterable[PartitionKey]) -> list[ForgottenTopic]:
    topics: dict[Any, ForgottenTopic] = {}
    for topic_id, index in keys:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ForgottenTopic(topic_id=topic_id)
        topic.partitions.append(index)
    return list(topics.values())
