"""`ottla transactions`: Kafka's kafka-transactions."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import click

from broker.cli.shared import transactions as queries
from broker.cli.shared.advice import with_advice
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import client_options, json_option
from broker.cli.shared.output import print_json, print_tabbed
from broker.cli.shared.session import session
from broker.client import Client
from protocol.errors import ErrorCode, KafkaError
from storage.directories.checkpoints import TopicPartition

NONE = "None"
MS_PER_MINUTE = 60_000

LISTING = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
DESCRIPTION = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)
PRODUCERS = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)
HANGING = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)

Row = Sequence[object]


class _Cluster(NamedTuple):
    """The cluster that a subcommand asks."""

    bootstrap_server: str
    command_config: str | None

    def retrying(self, work: Callable[[Client], Sequence[Row]], failure: str, *also: ErrorCode) -> Sequence[Row]:
        """Return the rows. Raises CommandFailed, with `failure` before the broker's error."""
        with session(self.bootstrap_server, self.command_config) as client:
            try:
                return client.retrying(lambda: work(client), frozenset(also))
            except KafkaError as error:
                raise CommandFailed(with_advice(f"{failure}: {error.message}", error)) from error


@click.group("transactions", short_help="List, describe and abort transactions.")
@client_options
@click.pass_context
def transactions(context: click.Context, bootstrap_server: str, command_config: str | None) -> None:
    """Analyse the transactional state of producers, and end hanging transactions (kafka-transactions)."""
    context.obj = _Cluster(bootstrap_server, command_config)


@transactions.command("list")
@click.option("--duration-filter", type=int, default=-1, metavar="MS", help="Only transactions that last longer.")
@click.option("--transactional-id-pattern", metavar="REGEX", help="Only transactional ids that match.")
@json_option
@click.pass_obj
def list_(cluster: _Cluster, duration_filter: int, transactional_id_pattern: str | None, as_json: bool) -> None:
    """List transactions."""

    def work(client: Client) -> Sequence[Row]:
        found = queries.list_transactions(client, duration_ms=duration_filter, pattern=transactional_id_pattern)
        return [
            (each.state.transactional_id, each.coordinator, each.state.producer_id, each.state.transaction_state)
            for each in found
        ]

    _print(LISTING, cluster.retrying(work, "Failed to list transactions"), as_json)


@transactions.command("describe")
@click.option("--transactional-id", required=True, metavar="ID", help="The transactional id.")
@json_option
@click.pass_obj
def describe(cluster: _Cluster, transactional_id: str, as_json: bool) -> None:
    """Describe the state of a transactional id."""

    def work(client: Client) -> Sequence[Row]:
        coordinator, state = queries.describe_transaction(client, transactional_id)
        start_ms = state.transaction_start_time_ms
        times: tuple[object, object] = (NONE, NONE) if start_ms < 0 else (start_ms, _now_ms() - start_ms)
        partitions = ",".join(f"{topic.topic}-{index}" for topic in state.topics for index in topic.partitions)
        timeout_ms = state.transaction_timeout_ms
        producer = (state.producer_id, state.producer_epoch)
        return [(coordinator, transactional_id, *producer, state.transaction_state, timeout_ms, *times, partitions)]

    failure = f"Failed to describe transaction state of transactional-id `{transactional_id}`"
    _print(DESCRIPTION, cluster.retrying(work, failure), as_json)


@transactions.command("describe-producers")
@click.option("--broker-id", type=int, metavar="ID", help="A replica to ask. [default: the leader]")
@click.option("--topic", required=True, metavar="TOPIC", help="The topic.")
@click.option("--partition", required=True, type=int, metavar="P", help="The partition.")
@json_option
@click.pass_obj
def describe_producers(cluster: _Cluster, broker_id: int | None, topic: str, partition: int, as_json: bool) -> None:
    """Describe the active producers of a partition."""
    wanted = TopicPartition(topic, partition)

    def work(client: Client) -> Sequence[Row]:
        return [
            (
                state.producer_id,
                state.producer_epoch,
                state.coordinator_epoch,
                state.last_sequence,
                state.last_timestamp,
                NONE if state.current_txn_start_offset == queries.NO_OFFSET else state.current_txn_start_offset,
            )
            for _, state in queries.describe_producers(client, [wanted], broker_id)
        ]

    where = "leader" if broker_id is None else f"broker {broker_id}"
    failure = f"Failed to describe producers for partition {wanted} on {where}"
    _print(PRODUCERS, cluster.retrying(work, failure), as_json)


@transactions.command("abort")
@click.option("--topic", required=True, metavar="TOPIC", help="The topic.")
@click.option("--partition", required=True, type=int, metavar="P", help="The partition.")
@click.option("--start-offset", type=int, metavar="N", help="First offset of the transaction; brokers since 3.0.")
@click.option("--producer-id", type=int, metavar="ID", help="Producer id; brokers before 3.0.")
@click.option("--producer-epoch", type=int, metavar="N", help="Producer epoch; brokers before 3.0.")
@click.option("--coordinator-epoch", type=int, metavar="N", help="Coordinator epoch; brokers before 3.0.")
@click.pass_obj
def abort(
    cluster: _Cluster,
    topic: str,
    partition: int,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
) -> None:
    """Abort a hanging transaction in one partition."""
    wanted = TopicPartition(topic, partition)
    given: tuple[int, int, int] | None = None
    if start_offset is None:
        if producer_id is None:
            raise CommandFailed(
                "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above)"
                " or with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
            )
        if producer_epoch is None:
            raise CommandFailed("Missing required argument --producer-epoch")
        if coordinator_epoch is None:
            raise CommandFailed("Missing required argument --coordinator-epoch")
        given = (producer_id, producer_epoch, coordinator_epoch)

    def work(client: Client) -> Sequence[Row]:
        producer = given or _open_at(client, wanted, start_offset)
        queries.abort_transaction(client, wanted, *producer)
        return ()

    cluster.retrying(work, f"Failed to abort the transaction in partition {wanted}")


def _open_at(client: Client, partition: TopicPartition, start_offset: int | None) -> tuple[int, int, int]:
    """Return producer id, producer epoch and coordinator epoch of an open transaction. Raises CommandFailed."""
    for _, state in queries.describe_producers(client, [partition]):
        if state.current_txn_start_offset == start_offset:
            return state.producer_id, state.producer_epoch, state.coordinator_epoch
    raise CommandFailed(
        f"Could not find any open transactions starting at offset {start_offset} on partition {partition}"
    )


@transactions.command("find-hanging")
@click.option("--broker-id", type=int, metavar="ID", help="Search the replicas of this broker.")
@click.option(
    "--max-transaction-timeout",
    type=int,
    default=15,
    show_default=True,
    metavar="MINUTES",
    help="Search only transactions that have been open for longer.",
)
@click.option("--topic", metavar="TOPIC", help="Search this topic.")
@click.option("--partition", type=int, metavar="P", help="Search this partition of --topic.")
@json_option
@click.pass_obj
def find_hanging(
    cluster: _Cluster,
    broker_id: int | None,
    max_transaction_timeout: int,
    topic: str | None,
    partition: int | None,
    as_json: bool,
) -> None:
    """Find transactions that no coordinator will end."""
    if topic is None and broker_id is None:
        raise CommandFailed(
            "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"
        )
    if partition is not None and topic is None:
        raise CommandFailed("The --partition argument requires --topic to be provided")

    def work(client: Client) -> Sequence[Row]:
        searched = queries.partitions_of(client, topic, partition, broker_id)
        producers = queries.describe_producers(client, searched, broker_id)
        now_ms = _now_ms()
        candidates = [
            each
            for each in producers
            if each.state.current_txn_start_offset != queries.NO_OFFSET
            and now_ms - each.state.last_timestamp > max_transaction_timeout * MS_PER_MINUTE
        ]
        return [_hanging_row(each, now_ms) for each in queries.hanging(client, candidates)]

    _print(HANGING, cluster.retrying(work, "Failed to find hanging transactions"), as_json)


def _hanging_row(producer: queries.KnownProducer, now_ms: int) -> Row:
    partition, state = producer
    return (
        partition.topic,
        partition.partition,
        state.producer_id,
        state.producer_epoch,
        state.coordinator_epoch,
        state.current_txn_start_offset,
        state.last_timestamp,
        (now_ms - state.last_timestamp) // MS_PER_MINUTE,
    )


@transactions.command("forceTerminateTransaction")
@click.option("--transactionalId", "transactional_id", required=True, metavar="ID", help="The transactional id.")
@click.pass_obj
def force_terminate(cluster: _Cluster, transactional_id: str) -> None:
    """Abort the ongoing transaction of a transactional id, and fence its producer."""

    def work(client: Client) -> Sequence[Row]:
        queries.fence_producer(client, transactional_id)
        return ()

    failure = f"Failed to force terminate transactionalId `{transactional_id}`"
    cluster.retrying(work, failure, ErrorCode.CONCURRENT_TRANSACTIONS)


def _print(headings: Sequence[str], rows: Sequence[Row], as_json: bool) -> None:
    if as_json:
        print_json([dict(zip(map(_key, headings), row, strict=True)) for row in rows])
    else:
        print_tabbed(headings, rows)


def _key(heading: str) -> str:
    """Return the JSON key of a column: "durationMinutes" for "Duration(min)"."""
    name = heading.replace("(min)", "Minutes")
    return name[0].lower() + name[1:]


def _now_ms() -> int:
    return int(time.time() * 1000)
