"""`ottla get-offsets`: Kafka's kafka-get-offsets."""

from collections import defaultdict
from collections.abc import Sequence

import click

from broker.cli.admin.partition_filter import PartitionFilter, filter_of_options, filter_of_rules
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.offsets import CONSUMER_REPLICA_ID, NO_OFFSET, by_topic
from broker.cli.shared.options import client_options, json_option
from broker.cli.shared.output import print_json
from broker.cli.shared.session import session
from broker.client import TRANSIENT, Client, UnsupportedVersion
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from storage.directories.checkpoints import TopicPartition

SPECIAL_TIMES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
FIRST_VERSIONS = {-3: 7, -4: 8, -5: 9, -6: 11}
"""First version of ListOffsets that understands a special time (KIP-734, KIP-405, KIP-1005, KIP-1023)."""

Found = dict[TopicPartition, int | ErrorCode]
"""The offset of each partition, -1 if no record is that late, or the error."""


@click.command("get-offsets", short_help="Print offsets of partitions by time.")
@client_options
@click.option("--topic", metavar="REGEX", help="Only topics that match. [default: all topics]")
@click.option("--partitions", metavar="P,…", help="Only these partitions of the topics.")
@click.option(
    "--topic-partitions",
    metavar="TOPIC[:P|:LOW-END],…",
    help="Patterns of topics and their partitions, such as t:0-3 (0 to 2), t:5-, :-3; not with the two options above.",
)
@click.option(
    "--time",
    default="latest",
    show_default=True,
    metavar="MS|NAME",
    help=f"First offset at or after a time in ms; or {', '.join(SPECIAL_TIMES)} (-1 to -6).",
)
@click.option("--exclude-internal-topics", is_flag=True, help="Leave out internal topics.")
@json_option
def get_offsets(
    bootstrap_server: str,
    command_config: str | None,
    topic: str | None,
    partitions: str | None,
    topic_partitions: str | None,
    time: str,
    exclude_internal_topics: bool,
    as_json: bool,
) -> None:
    """Print TOPIC:PARTITION:OFFSET for partitions with an offset for the time (kafka-get-offsets)."""
    if topic_partitions is not None and (topic is not None or partitions is not None):
        raise click.UsageError("--topic-partitions cannot be used with --topic or --partitions.")
    chosen = filter_of_options(topic, partitions) if topic_partitions is None else filter_of_rules(topic_partitions)
    timestamp = _timestamp(time)
    with session(bootstrap_server, command_config) as client:
        selected = client.retrying(lambda: _select(client, chosen, exclude_internal_topics))
        if not selected:
            raise CommandFailed(
                "no partition matches the options; `ottla topics --describe` shows topics and their partitions."
            )
        found = _find(client, selected, timestamp)
    offsets = {partition: offset for partition, offset in found.items() if not isinstance(offset, ErrorCode)}
    for partition, result in found.items():
        if isinstance(result, ErrorCode):
            click.echo(f"Skip getting offsets for topic-partition {partition} due to error: {result.message}", err=True)
    shown = [(partition, offset) for partition, offset in offsets.items() if offset != NO_OFFSET]
    if as_json:
        print_json([{"topic": p.topic, "partition": p.partition, "offset": offset} for p, offset in shown])
        return
    for partition, offset in shown:
        click.echo(f"{partition.topic}:{partition.partition}:{offset}")


def _timestamp(text: str) -> int:
    """Return the time as a number that ListOffsets understands. Raises UsageError."""
    if text in SPECIAL_TIMES:
        return SPECIAL_TIMES[text]
    try:
        return int(text)
    except ValueError as error:
        names = ", ".join(SPECIAL_TIMES)
        raise click.UsageError(f"--time {text}: use milliseconds since 1970 or one of {names}.") from error


def _select(client: Client, chosen: PartitionFilter, exclude_internal: bool) -> dict[TopicPartition, int]:
    """Return the leader of each chosen partition, -1 without one, in Kafka's order: t-1 and t-10 precede t-2."""
    leaders = {
        TopicPartition(topic.name or "", partition.partition_index): partition.leader_id
        for topic in client.metadata().topics
        if not (exclude_internal and topic.is_internal)
        for partition in topic.partitions
    }
    return {partition: leaders[partition] for partition in sorted(leaders, key=str) if chosen(partition)}


def _find(client: Client, leaders: dict[TopicPartition, int], timestamp: int) -> Found:
    """Return the results, after retries while a partition has a transient error."""

    def attempt() -> Found:
        found = _look_up(client, _select(client, leaders.__contains__, exclude_internal=False), timestamp)
        for code in found.values():
            if isinstance(code, ErrorCode) and code in TRANSIENT:
                raise KafkaError(code)
        return found

    try:
        return client.retrying(attempt)
    except KafkaError:
        return _look_up(client, leaders, timestamp)


def _look_up(client: Client, leaders: dict[TopicPartition, int], timestamp: int) -> Found:
    found: Found = dict.fromkeys(leaders, ErrorCode.LEADER_NOT_AVAILABLE)
    by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for partition, leader in leaders.items():
        if leader >= 0:
            by_leader[leader].append(partition)
    for leader, partitions in by_leader.items():
        connection = client.node(leader)
        if connection.version_of(ApiKey.LIST_OFFSETS) < FIRST_VERSIONS.get(timestamp, 0):
            raise UnsupportedVersion(f"broker {leader} does not know --time {timestamp}; upgrade the broker.")
        for topic in connection.call(
            _request(partitions, timestamp, client.config.request_timeout_ms), ListOffsetsResponse
        ).topics:
            for result in topic.partitions:
                partition = TopicPartition(topic.name, result.partition_index)
                found[partition] = ErrorCode(result.error_code) or result.offset
    return found


def _request(partitions: Sequence[TopicPartition], timestamp: int, timeout_ms: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID,
        topics=[
            ListOffsetsTopic(topic, [ListOffsetsPartition(p.partition, -1, timestamp) for p in group])
            for topic, group in by_topic(partitions).items()
        ],
        timeout_ms=timeout_ms,
    )
