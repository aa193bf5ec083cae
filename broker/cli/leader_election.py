"""`ottla leader-election`: Kafka's kafka-leader-election."""

import json
from collections import defaultdict
from collections.abc import Iterable

import click

from broker.cli.shared.advice import with_advice_for
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import client_options, json_option, one_action
from broker.cli.shared.output import print_json
from broker.cli.shared.session import session
from broker.client import Client, raise_for
from protocol.errors import ErrorCode
from protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    TopicPartitions,
)
from storage.directories.checkpoints import TopicPartition

ELECTION_TYPES = {"preferred": 0, "unclean": 1}


@click.command("leader-election", short_help="Elect leaders of partitions.")
@click.option(
    "--election-type",
    required=True,
    type=click.Choice(list(ELECTION_TYPES), case_sensitive=False),
    help="preferred: elect the preferred replica; unclean: elect any replica if none is in sync.",
)
@click.option("--topic", metavar="TOPIC", help="The topic of --partition.")
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="A partition of --topic.")
@click.option("--all-topic-partitions", is_flag=True, help="All eligible partitions.")
@click.option("--path-to-json-file", metavar="FILE", help='{"partitions": [{"topic": "foo", "partition": 1}]}.')
@client_options
@click.option(
    "--admin.config", "admin_config", metavar="FILE", type=click.Path(), help="Former name of --command-config."
)
@json_option
def leader_election(
    election_type: str,
    topic: str | None,
    partition: int | None,
    all_topic_partitions: bool,
    path_to_json_file: str | None,
    bootstrap_server: str,
    command_config: str | None,
    admin_config: str | None,
    as_json: bool,
) -> None:
    """Elect leaders of partitions (kafka-leader-election)."""
    action = one_action(
        {
            "topic": topic is not None,
            "all-topic-partitions": all_topic_partitions,
            "path-to-json-file": path_to_json_file is not None,
        }
    )
    if (action == "topic") != (partition is not None):
        raise click.UsageError("--topic and --partition must be given together.")
    wanted: list[TopicPartition] | None = None
    if topic is not None and partition is not None:
        wanted = [TopicPartition(topic, partition)]
    elif path_to_json_file is not None:
        wanted = read_partitions(path_to_json_file)
    with session(bootstrap_server, command_config or admin_config) as client:
        outcome = client.retrying(lambda: _elect(client, ELECTION_TYPES[election_type.lower()], wanted))
    _show(outcome, election_type.upper(), as_json)


def read_partitions(path: str) -> list[TopicPartition]:
    """Read the partitions from a file in Kafka's format. Raises CommandFailed."""
    try:
        with open(path, encoding="utf-8") as file:
            rows = [TopicPartition(row["topic"], int(row["partition"])) for row in json.load(file)["partitions"]]
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CommandFailed(f"{path} does not list partitions: {error}.") from error
    if not rows:
        raise CommandFailed("partitions list cannot be empty")
    twice = sorted({str(row) for row in rows if rows.count(row) > 1})
    if twice:
        raise CommandFailed(f"partitions list cannot contain duplicate partitions: {', '.join(twice)}")
    return rows


def _elect(
    client: Client, election_type: int, wanted: Iterable[TopicPartition] | None
) -> dict[TopicPartition, PartitionResult]:
    """Elect leaders; return the result of each partition. Raises KafkaError."""
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for partition in wanted or ():
        topics[partition.topic].append(partition.partition)
    requested = None if wanted is None else [TopicPartitions(name, indexes) for name, indexes in topics.items()]
    request = ElectLeadersRequest(election_type, requested, client.config.request_timeout_ms)
    answer = client.call(request, ElectLeadersResponse)
    raise_for(answer.error_code, "the election")
    return {
        TopicPartition(topic.topic, result.partition_id): result
        for topic in answer.replica_election_results
        for result in topic.partition_result
    }


def _show(outcome: dict[TopicPartition, PartitionResult], election_type: str, as_json: bool) -> None:
    """Print all results. Raises CommandFailed if a partition failed."""
    elected = sorted(key for key, result in outcome.items() if not result.error_code)
    needless = sorted(key for key, result in outcome.items() if result.error_code == ErrorCode.ELECTION_NOT_NEEDED)
    failed = sorted(outcome.keys() - set(elected) - set(needless))
    if as_json:
        rows = [
            {
                "topic": key.topic,
                "partition": key.partition,
                "error": ErrorCode(result.error_code).name if result.error_code else None,
            }
            for key, result in sorted(outcome.items())
        ]
        print_json(rows)
    else:
        if elected:
            names = ", ".join(map(str, elected))
            click.echo(f"Successfully completed leader election ({election_type}) for partitions {names}")
        if needless:
            click.echo(f"Valid replica already elected for partitions {', '.join(map(str, needless))}")
        for key in failed:
            reason = outcome[key].error_message or ErrorCode(outcome[key].error_code).message
            click.echo(f"Error completing leader election ({election_type}) for partition: {key}: {reason}")
    if failed:
        text = f"{len(failed)} replica(s) could not be elected; see the errors above."
        raise CommandFailed(with_advice_for(text, (outcome[key].error_code for key in failed)))
