"""`ottla log-dirs`: Kafka's kafka-log-dirs. Prints JSON after two lines of prose; with --json, only JSON."""

import json

import click

from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import client_options, json_option
from broker.cli.shared.output import print_json
from broker.cli.shared.session import session
from broker.client import Client, raise_for
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)


@click.command("log-dirs", short_help="Show log directories and the sizes of their partitions.")
@click.option("--describe", is_flag=True, help="Describe the log directories.")
@click.option("--broker-list", metavar="ID,…", help="Only these brokers.")
@click.option("--topic-list", metavar="TOPIC,…", help="Only partitions of these topics.")
@client_options
@json_option
def log_dirs(
    describe: bool,
    broker_list: str | None,
    topic_list: str | None,
    bootstrap_server: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Show log directories and the sizes of their partitions (kafka-log-dirs)."""
    if not describe:
        raise click.UsageError("Missing option '--describe'.")
    topics = None if not topic_list else [topic.strip() for topic in topic_list.split(",") if topic.strip()]
    with session(bootstrap_server, command_config) as client:
        described = client.retrying(lambda: _describe(client, _broker_ids(client, broker_list), topics))
    document = {"brokers": [{"broker": id, "logDirs": dirs} for id, dirs in described.items()], "version": 1}
    if as_json:
        print_json(document)
        return
    brokers = ",".join(map(str, described))
    click.echo("Querying brokers for log directories information")
    click.echo(f"Received log directory information from brokers {brokers}")
    click.echo(json.dumps(document, separators=(",", ":")))


def _broker_ids(client: Client, text: str | None) -> list[int]:
    live = sorted(broker.node_id for broker in client.metadata([]).brokers)
    if not text:
        return live
    try:
        wanted = [int(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise CommandFailed(f"--broker-list {text}: use broker ids such as 0,1,2.") from error
    missing = [str(broker) for broker in wanted if broker not in live]
    if missing:
        raise CommandFailed(
            f"The given brokers do not exist from --broker-list: {','.join(missing)}."
            f" Current existent brokers: {','.join(map(str, live))}"
        )
    return wanted


def _describe(client: Client, brokers: list[int], topics: list[str] | None) -> dict[int, list[dict[str, object]]]:
    wanted = None
    if topics is not None:
        found = client.metadata(topics).topics
        wanted = [
            DescribableLogDirTopic(topic.name or "", [p.partition_index for p in topic.partitions])
            for topic in found
            if not topic.error_code
        ]
    request = DescribeLogDirsRequest(topics=wanted)
    described = {}
    for broker in brokers:
        response = client.node(broker).call(request, DescribeLogDirsResponse)
        raise_for(response.error_code, f"broker {broker}")
        described[broker] = [_directory(result) for result in response.results]
    return described


def _directory(result: DescribeLogDirsResult) -> dict[str, object]:
    return {
        "partitions": [
            {
                "partition": f"{topic.name}-{p.partition_index}",
                "size": p.partition_size,
                "offsetLag": p.offset_lag,
                "isFuture": p.is_future_key,
            }
            for topic in result.topics
            for p in topic.partitions
        ],
        "error": ErrorCode(result.error_code).message if result.error_code else None,
        "logDir": result.log_dir,
    }
