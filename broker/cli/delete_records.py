"""`ottla delete-records`: Kafka's kafka-delete-records."""

import json
from collections import defaultdict

import click

from broker.cli.shared.advice import with_advice_for
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.offsets import by_topic
from broker.cli.shared.options import client_options, json_option
from broker.cli.shared.output import print_json
from broker.cli.shared.progress import with_progress
from broker.cli.shared.session import session
from broker.client import Client
from protocol.errors import ErrorCode
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from storage.directories.checkpoints import TopicPartition

FILE_VERSION = 1


@click.command("delete-records", short_help="Delete the oldest records of partitions.")
@click.option(
    "--offset-json-file",
    required=True,
    metavar="FILE",
    type=click.Path(),
    help='{"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}; offset -1 is the log end.',
)
@client_options
@json_option
def delete_records(offset_json_file: str, bootstrap_server: str, command_config: str | None, as_json: bool) -> None:
    """Delete all records of partitions below given offsets (kafka-delete-records)."""
    offsets = read_offsets(offset_json_file)
    with session(bootstrap_server, command_config) as client:
        outcome = client.retrying(lambda: _delete(client, offsets))
    if as_json:
        print_json([_document(partition, result) for partition, result in sorted(outcome.items())])
    else:
        click.echo("Executing records delete operation\nRecords delete operation completed:")
        for partition, result in sorted(outcome.items()):
            text = f"error: {result.message}" if isinstance(result, ErrorCode) else f"low_watermark: {result}"
            click.echo(f"partition: {partition}\t{text}")
    if codes := [result for result in outcome.values() if isinstance(result, ErrorCode)]:
        text = "the records of some partitions were not deleted; see the errors above."
        raise CommandFailed(with_advice_for(text, codes))


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """Read the offsets from a file in Kafka's format. Raises CommandFailed."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        if document.get("version", FILE_VERSION) != FILE_VERSION:
            raise CommandFailed(f"{path}: version {document['version']} is not supported; use {FILE_VERSION}.")
        rows = [
            (TopicPartition(row["topic"], int(row["partition"])), int(row["offset"])) for row in document["partitions"]
        ]
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandFailed(f"{path} is not an offset JSON file: {error}.") from error
    offsets = dict(rows)
    if len(offsets) != len(rows):
        twice = sorted({str(partition) for partition, _ in rows if [p for p, _ in rows].count(partition) > 1})
        raise CommandFailed(f"Offset json file contains duplicate topic partitions: {','.join(twice)}")
    return offsets


def _delete(client: Client, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int | ErrorCode]:
    """Delete records; return the new low watermark or the error code of each partition."""
    outcome: dict[TopicPartition, int | ErrorCode] = {}
    leaders: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    known = {
        TopicPartition(topic.name or "", p.partition_index): p.leader_id
        for topic in client.metadata({partition.topic for partition in offsets}).topics
        for p in topic.partitions
    }
    for partition in offsets:
        leader = known.get(partition)
        if leader is None:
            outcome[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif leader < 0:
            outcome[partition] = ErrorCode.LEADER_NOT_AVAILABLE
        else:
            leaders[leader].append(partition)
    for node, partitions in with_progress(leaders.items(), "brokers", len(leaders)):
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(topic, [DeleteRecordsPartition(p.partition, offsets[p]) for p in group])
                for topic, group in by_topic(partitions).items()
            ],
            timeout_ms=client.config.request_timeout_ms,
        )
        for topic in client.node(node).call(request, DeleteRecordsResponse).topics:
            for p in topic.partitions:
                code = ErrorCode(p.error_code)
                outcome[TopicPartition(topic.name, p.partition_index)] = code or p.low_watermark
    return outcome


def _document(partition: TopicPartition, result: int | ErrorCode) -> dict[str, object]:
    failed = isinstance(result, ErrorCode)
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "lowWatermark": None if failed else result,
        "error": result.name if isinstance(result, ErrorCode) else None,
    }
