"""`ottla verifiable-consumer`: Kafka's kafka-verifiable-consumer, with a member of a classic group."""

import itertools
from collections.abc import Mapping, Sequence

import click

from broker.cli.console.fetcher import ConsumerRecord, Fetcher, FetchSettings
from broker.cli.console.membership import GroupMembership
from broker.cli.console.properties import number
from broker.cli.console.readers import member_settings, no_records
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.offsets import EARLIEST, LATEST
from broker.cli.shared.options import DEFAULT_BOOTSTRAP
from broker.cli.shared.session import read_properties, session
from broker.cli.verifiable.events import emit, ended_by_signals, text
from broker.client import Client
from protocol.errors import ErrorCode, KafkaError
from storage.directories.checkpoints import TopicPartition

CLASSIC = "classic"
RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}
RANGE_ASSIGNOR = "org.apache.kafka.clients.consumer.RangeAssignor"
MAX_POLL_RECORDS = 500
CLIENT_ID = "verifiable-consumer"


@click.command("verifiable-consumer", short_help="Read a topic in a group and report each event as JSON.")
@click.option("--topic", required=True, metavar="TOPIC", help="The topic to read.")
@click.option("--group-id", required=True, metavar="GROUP", help="The group.")
@click.option(
    "--bootstrap-server", metavar="HOST:PORT[,…]", default=DEFAULT_BOOTSTRAP, show_default=True, help="Brokers."
)
@click.option("--group-protocol", default=CLASSIC, show_default=True, help="Only classic is supported.")
@click.option("--group-remote-assignor", metavar="NAME", help="Not supported: belongs to the consumer protocol.")
@click.option("--group-instance-id", metavar="ID", help="Id of a static member.")
@click.option("--max-messages", type=int, default=-1, metavar="N", help="Stop after N records. [default: no limit]")
@click.option("--session-timeout", type=click.IntRange(min=1), metavar="MS", help="Session timeout. [default: 45000]")
@click.option("--verbose", is_flag=True, help="Report each record.")
@click.option("--enable-autocommit", is_flag=True, help="Commit by interval and at the end, without events.")
@click.option(
    "--reset-policy",
    type=click.Choice(list(RESETS)),
    default="earliest",
    show_default=True,
    help="Start where no offset is committed.",
)
@click.option("--assignment-strategy", default=RANGE_ASSIGNOR, metavar="CLASS", help="Only the range assignor.")
@click.option(
    "--command-config", "--consumer.config", "config", metavar="FILE", type=click.Path(), help="Consumer properties."
)
def verifiable_consumer(
    topic: str,
    group_id: str,
    bootstrap_server: str,
    group_protocol: str,
    group_remote_assignor: str | None,
    group_instance_id: str | None,
    max_messages: int,
    session_timeout: int | None,
    verbose: bool,
    enable_autocommit: bool,
    reset_policy: str,
    assignment_strategy: str,
    config: str | None,
) -> None:
    """Read a topic as a member of a group and print one line of JSON for each event (kafka-verifiable-consumer)."""
    if group_protocol.lower() != CLASSIC or group_remote_assignor is not None:
        raise CommandFailed("--group-protocol: this client has the classic protocol only; leave the option out.")
    if assignment_strategy.rpartition(".")[2] != "RangeAssignor":
        raise CommandFailed(f"--assignment-strategy {assignment_strategy} is not supported; use {RANGE_ASSIGNOR}.")
    properties = read_properties(config)
    if session_timeout is not None:
        properties["session.timeout.ms"] = str(session_timeout)
    if group_instance_id is not None:
        properties["group.instance.id"] = group_instance_id
    reset = RESETS[reset_policy]
    settings = FetchSettings(reset=reset, max_wait_ms=number(properties, "fetch.max.wait.ms", 500))
    with session(bootstrap_server, None, {"client.id": CLIENT_ID} | properties) as client:
        member = GroupMembership(client, member_settings(group_id, properties))
        run = _Run(client, Fetcher(client, settings), member, topic, reset)
        with ended_by_signals():
            run.consume(max_messages, is_verbose=verbose, reports_commits=not enable_autocommit)
        run.close(commits=enable_autocommit)
    emit("shutdown_complete")


class _Run:
    """One member of the group and its positions."""

    def __init__(
        self, client: Client, fetcher: Fetcher, member: GroupMembership, topic: str, reset: int | None
    ) -> None:
        self._client = client
        self._fetcher = fetcher
        self._member = member
        self._topic = topic
        self._reset = reset

    def consume(self, limit: int, *, is_verbose: bool, reports_commits: bool) -> None:
        """Read until `limit` records (-1: no limit) are consumed."""
        emit("startup_complete")
        self._join()
        consumed = 0
        while limit < 0 or consumed < limit:
            source = self._fetcher.poll() if self._fetcher.positions else no_records()
            polled = list(itertools.islice(source, MAX_POLL_RECORDS))
            taken = polled if limit < 0 else polled[: limit - consumed]
            if taken:
                consumed += len(taken)
                self._report(polled, taken, is_verbose=is_verbose)
                self._rewind(taken)
                if reports_commits:
                    self._commit(_ends(taken))
            if not self._member.keep_alive():
                self._revoke()
                self._join()

    def close(self, *, commits: bool) -> None:
        """Leave the group; before that, commit the positions if asked to."""
        if commits:
            self._member.commit(self._fetcher.positions)
        self._revoke()
        self._member.leave()

    def _join(self) -> None:
        assigned = self._member.join([self._topic])
        emit("partitions_assigned", partitions=_named(assigned))
        committed = self._member.committed(assigned)
        missing = [partition for partition in assigned if partition not in committed]
        if missing and self._reset is None:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{missing[0]} has no committed offset to start at.")
        self._fetcher.assign({each: committed.get(each, self._reset or LATEST) for each in assigned})

    def _revoke(self) -> None:
        if self._fetcher.positions:
            emit("partitions_revoked", partitions=_named(list(self._fetcher.positions)))
        self._fetcher.assign({})

    def _rewind(self, taken: Sequence[ConsumerRecord]) -> None:
        """Set the positions back to the records that count: the last poll may have more than the limit."""
        self._fetcher.positions |= _ends(taken)

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        done = self._member.commit(offsets)
        rows = [{"topic": p.topic, "partition": p.partition, "offset": offset} for p, offset in offsets.items()]
        failure = {} if done else {"error": "the group has rebalanced meanwhile"}
        emit("offsets_committed", offsets=rows, success=done, **failure)

    def _report(self, polled: Sequence[ConsumerRecord], taken: Sequence[ConsumerRecord], *, is_verbose: bool) -> None:
        by_partition: dict[TopicPartition, list[int]] = {}
        for partition, _, record in taken:
            by_partition.setdefault(partition, []).append(record.offset)
            if is_verbose:
                emit(
                    "record_data",
                    key=text(record.key),
                    value=text(record.value),
                    topic=partition.topic,
                    partition=partition.partition,
                    offset=record.offset,
                )
        rows = [
            {"topic": p.topic, "partition": p.partition, "count": len(o), "minOffset": o[0], "maxOffset": o[-1]}
            for p, o in by_partition.items()
        ]
        emit("records_consumed", count=len(polled), partitions=rows)


def _ends(records: Sequence[ConsumerRecord]) -> dict[TopicPartition, int]:
    return {partition: record.offset + 1 for partition, _, record in records}


def _named(partitions: Sequence[TopicPartition]) -> list[dict[str, object]]:
    return [{"topic": partition.topic, "partition": partition.partition} for partition in partitions]
