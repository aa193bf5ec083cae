"""Descriptions of streams groups, and their topics."""

from collections.abc import Sequence

import click

from broker.cli.groups.view import coordinator_of, listed_groups
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.offsets import committed_offsets
from broker.client import Client, raise_for
from protocol.errors import ErrorCode
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from protocol.messages.list_groups import ListedGroup
from protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    Subtopology,
)
from storage.directories.checkpoints import TopicPartition

STREAMS = "streams"
_DELETION_TIMEOUT_MS = 30_000
_INTERNAL_SUFFIXES = ("-changelog", "-repartition", "-topic")


@lazy_dataclass(frozen=True, slots=True)
class StreamsGroupView:
    """A group as its coordinator, (node id, host, port), describes it."""

    described: DescribedGroup
    coordinator: tuple[int, str, int]

    @property
    def group_id(self) -> str:
        return self.described.group_id

    def subtopologies(self) -> Sequence[Subtopology]:
        topology = self.described.topology
        return () if topology is None else topology.subtopologies or ()

    def inputs(self) -> list[str]:
        """Return the topics that the application reads and does not write itself."""
        return sorted({topic for each in self.subtopologies() for topic in each.source_topics})

    def internal_topics(self) -> list[str]:
        """Return the repartition and changelog topics, except those that are inputs."""
        topics = (topic for each in self.subtopologies() for topic in _internal(each))
        return sorted(set(topics) - set(self.inputs()))


def list_streams_groups(client: Client, states: Sequence[str] = ()) -> list[ListedGroup]:
    """List the streams groups of all brokers. Raises KafkaError."""
    return listed_groups(client, states, [STREAMS])


def describe_streams_group(client: Client, group_id: str) -> StreamsGroupView:
    """Describe a group. Raises KafkaError, GROUP_ID_NOT_FOUND for a missing one and for one of another type."""
    connection, coordinator = coordinator_of(client, group_id)
    request = StreamsGroupDescribeRequest(group_ids=[group_id])
    (found,) = connection.call(request, StreamsGroupDescribeResponse).groups
    raise_for(found.error_code, f"group {group_id!r}", found.error_message)
    return StreamsGroupView(found, coordinator)


def committed_inputs(client: Client, group: StreamsGroupView) -> dict[TopicPartition, tuple[int, int]]:
    """Return (offset, leader epoch) of each partition of an input topic with a committed offset."""
    inputs = set(group.inputs())
    committed = committed_offsets(client, group.group_id)
    return {partition: offset for partition, offset in committed.items() if partition.topic in inputs}


def delete_internal_topics(client: Client, group_id: str, topics: Sequence[str]) -> None:
    """Delete internal topics; those that are gone already are named. Raises CommandFailed for any other error.

    The names of internal topics begin with the application id and have a suffix. Others stay.
    """
    chosen = []
    for topic in topics:
        if topic.startswith(f"{group_id}-") and topic.endswith(_INTERNAL_SUFFIXES):
            chosen.append(topic)
        else:
            click.echo(f"Topic '{topic}' is no internal topic of group '{group_id}' by its name, and stays.", err=True)
    if not chosen:
        return
    request = DeleteTopicsRequest([DeleteTopicState(name) for name in chosen], timeout_ms=_DELETION_TIMEOUT_MS)
    failed = []
    for result in client.call(request, DeleteTopicsResponse).responses:
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            click.echo(f"Internal topic '{result.name}' does not exist.", err=True)
        elif result.error_code:
            failed.append(f"{result.name} ({result.error_message or ErrorCode(result.error_code).message})")
        else:
            click.echo(f"Deleted internal topic '{result.name}'.")
    if failed:
        raise CommandFailed(f"internal topics of group {group_id} were not deleted: {', '.join(failed)}")


def _internal(subtopology: Subtopology) -> list[str]:
    return [topic.name for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics)]
