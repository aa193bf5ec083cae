"""`ottla verifiable-share-consumer`: Kafka's kafka-verifiable-share-consumer."""

from collections.abc import Sequence

import click

from broker.cli.share.consumer import ACCEPT, ShareConsumer, ShareRecord
from broker.cli.shared.options import DEFAULT_BOOTSTRAP
from broker.cli.shared.session import read_properties, session
from broker.cli.verifiable.events import emit, ended_by_signals, text
from broker.client import Client, raise_for
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

CLIENT_ID = "verifiable-share-consumer"
GROUP_RESOURCE = 32
SET = 0
AUTO, SYNC, ASYNC = "auto", "sync", "async"


@click.command("verifiable-share-consumer", short_help="Read a topic in a share group and report each event as JSON.")
@click.option("--topic", required=True, metavar="TOPIC", help="The topic to read.")
@click.option("--group-id", required=True, metavar="GROUP", help="The share group.")
@click.option(
    "--bootstrap-server", metavar="HOST:PORT[,…]", default=DEFAULT_BOOTSTRAP, show_default=True, help="Brokers."
)
@click.option("--max-messages", type=int, default=-1, metavar="N", help="Stop after N records. [default: no limit]")
@click.option("--verbose", is_flag=True, help="Report each record.")
@click.option(
    "--acknowledgement-mode",
    type=click.Choice([AUTO, SYNC, ASYNC]),
    default=AUTO,
    show_default=True,
    help="Accepted for compatibility: each poll is acknowledged before the next one.",
)
@click.option(
    "--offset-reset-strategy",
    type=click.Choice(["earliest", "latest"]),
    help="Set share.auto.offset.reset of the group first.",
)
@click.option("--command-config", metavar="FILE", type=click.Path(), help="Consumer properties.")
def verifiable_share_consumer(
    topic: str,
    group_id: str,
    bootstrap_server: str,
    max_messages: int,
    verbose: bool,
    acknowledgement_mode: str,
    offset_reset_strategy: str | None,
    command_config: str | None,
) -> None:
    """Read a topic in a share group and print one line of JSON for each event (kafka-verifiable-share-consumer)."""
    properties = read_properties(command_config)
    with session(bootstrap_server, None, {"client.id": CLIENT_ID} | properties) as client:
        emit("startup_complete")
        if offset_reset_strategy is not None:
            client.retrying(lambda: _set_reset(client, group_id, offset_reset_strategy))
            emit("offset_reset_strategy_set", offsetResetStrategy=offset_reset_strategy)
        consumer = ShareConsumer(client, group_id, topic)
        with ended_by_signals():
            _consume(consumer, max_messages, is_verbose=verbose)
        consumer.close()
    emit("shutdown_complete")


def _set_reset(client: Client, group: str, strategy: str) -> None:
    configs = [AlterableConfig("share.auto.offset.reset", SET, strategy)]
    request = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(GROUP_RESOURCE, group, configs)])
    for result in client.call(request, IncrementalAlterConfigsResponse).responses:
        raise_for(result.error_code, f"group {group!r}", result.error_message)


def _consume(consumer: ShareConsumer, limit: int, *, is_verbose: bool) -> None:
    """Read until `limit` records (-1: no limit) are consumed; acknowledge each poll and wait for the response."""
    consumed = 0
    while limit < 0 or consumed < limit:
        found = consumer.poll()
        if not found:
            continue
        consumed += len(found)
        for each in found:
            if is_verbose:
                _report_record(each)
            consumer.acknowledge(each, ACCEPT)
        emit("records_consumed", count=len(found), partitions=_by_partition(found))
        consumer.commit()
        emit("offsets_acknowledged", count=len(found), partitions=_by_partition(found), success=True)


def _report_record(found: ShareRecord) -> None:
    emit(
        "record_data",
        key=text(found.record.key),
        value=text(found.record.value),
        topic=found.partition.topic,
        partition=found.partition.partition,
        offset=found.record.offset,
    )


def _by_partition(found: Sequence[ShareRecord]) -> list[dict[str, object]]:
    offsets: dict[tuple[str, int], list[int]] = {}
    for each in found:
        offsets.setdefault((each.partition.topic, each.partition.partition), []).append(each.record.offset)
    return [
        {"topic": topic, "partition": partition, "count": len(group), "offsets": group}
        for (topic, partition), group in offsets.items()
    ]
