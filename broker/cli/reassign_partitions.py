"""`ottla reassign-partitions`: Kafka's kafka-reassign-partitions, without moves between directories."""

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping

import click

from broker.cli.reassignment.json_files import Assignment, assignment_json, read_assignment, read_topics
from broker.cli.reassignment.ongoing import OngoingReassignment, copied_bytes
from broker.cli.reassignment.throttles import clear_throttles, set_throttle, throttled_replicas
from broker.cli.shared.advice import with_advice_for
from broker.cli.shared.cluster_view import topics_of_metadata
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import forbid, json_option, one_action
from broker.cli.shared.output import print_json
from broker.cli.shared.progress import ProgressBar, is_shown
from broker.cli.shared.target import AdminClient, Target, target_options
from broker.client import Client, raise_for
from broker.metadata.controller.placement import PlacementImpossible, UsableBroker, place
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from storage.directories.checkpoints import TopicPartition

_BY_CONTROLLER = frozenset({"list", "cancel"})
"""Actions that need no broker."""


@click.command("reassign-partitions", short_help="Move partitions between brokers.")
@click.option("--generate", is_flag=True, help="Propose an assignment.")
@click.option("--execute", is_flag=True, help="Start the reassignment of a file.")
@click.option("--verify", is_flag=True, help="Show the progress of a file's reassignment.")
@click.option("--cancel", is_flag=True, help="Cancel the ongoing reassignments of a file.")
@click.option("--list", "list_", is_flag=True, help="List ongoing reassignments.")
@click.option("--reassignment-json-file", metavar="FILE", help="Partitions with their target replicas.")
@click.option("--topics-to-move-json-file", metavar="FILE", help='{"topics": [{"topic": "foo"}], "version": 1}.')
@click.option("--broker-list", metavar="ID[,…]", help="Brokers for the proposed assignment.")
@click.option("--disable-rack-aware", is_flag=True, help="Ignore racks.")
@click.option("--additional", is_flag=True, help="Allow other ongoing reassignments.")
@click.option("--disallow-replication-factor-change", is_flag=True, help="Fail if a replication factor would change.")
@click.option("--throttle", type=click.IntRange(min=1), metavar="RATE", help="Limit in bytes per second.")
@click.option("--preserve-throttles", is_flag=True, help="Do not remove throttles.")
@target_options
@json_option
def reassign_partitions(
    generate: bool,
    execute: bool,
    verify: bool,
    cancel: bool,
    list_: bool,
    reassignment_json_file: str | None,
    topics_to_move_json_file: str | None,
    broker_list: str | None,
    disable_rack_aware: bool,
    additional: bool,
    disallow_replication_factor_change: bool,
    throttle: int | None,
    preserve_throttles: bool,
    bootstrap_server: str | None,
    bootstrap_controller: str | None,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Move partitions between brokers (kafka-reassign-partitions)."""
    action = one_action({"generate": generate, "execute": execute, "verify": verify, "cancel": cancel, "list": list_})
    moves = {"topics-to-move-json-file": topics_to_move_json_file, "broker-list": broker_list}
    if action != "generate":
        forbid({**moves, "disable-rack-aware": disable_rack_aware}, "--generate")
    if action != "execute":
        changes = {"additional": additional, "disallow-replication-factor-change": disallow_replication_factor_change}
        forbid({**changes, "throttle": throttle}, "--execute")
    target = Target.of(bootstrap_server, bootstrap_controller, command_config)
    if target.is_controller and action not in _BY_CONTROLLER:
        raise click.UsageError(f"--bootstrap-controller does not go with --{action}; use --bootstrap-server.")
    with target.open() as admin:
        client = admin.client
        match action:
            case "generate":
                if topics_to_move_json_file is None or broker_list is None:
                    raise click.UsageError("--generate needs --topics-to-move-json-file and --broker-list.")
                _generate(client, read_topics(topics_to_move_json_file), broker_list, racks=not disable_rack_aware)
            case "list":
                _list(admin, as_json)
            case _:
                if reassignment_json_file is None:
                    raise click.UsageError(f"--{action} needs --reassignment-json-file.")
                wanted = read_assignment(reassignment_json_file)
                if action == "execute":
                    _execute(admin, wanted, additional, not disallow_replication_factor_change, throttle)
                elif action == "verify":
                    is_over = _verify(admin, wanted, as_json)
                    if is_over and not preserve_throttles:
                        _clear_throttles(admin, wanted, quiet=as_json)
                else:
                    _cancel(admin, wanted)
                    if not preserve_throttles:
                        _clear_throttles(admin, wanted)


def _generate(client: Client, topics: list[str], broker_list: str, *, racks: bool) -> None:
    ids = _broker_ids(broker_list)
    current = _current(client, topics)
    known = {broker.node_id: broker.rack for broker in client.metadata([]).brokers}
    missing = [broker for broker in ids if broker not in known]
    if missing:
        raise CommandFailed(f"Brokers {', '.join(map(str, missing))} are not live brokers of the cluster.")
    brokers = [UsableBroker(broker, known[broker] if racks else None, fenced=False) for broker in ids]
    proposed: Assignment = {}
    for topic in sorted({partition.topic for partition in current}):
        partitions = sorted(partition for partition in current if partition.topic == topic)
        try:
            lists = place(brokers, len(partitions), len(current[partitions[0]]), random.Random())
        except PlacementImpossible as error:
            raise CommandFailed(f"{topic}: {error}.") from error
        proposed |= dict(zip(partitions, lists, strict=True))
    click.echo(f"Current partition replica assignment\n{assignment_json(current)}\n")
    click.echo(f"Proposed partition reassignment configuration\n{assignment_json(proposed)}")


def _broker_ids(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise click.UsageError(f"--broker-list: {text!r} is not a list of broker ids.")
    ids = [int(part) for part in parts]
    if len(set(ids)) < len(ids):
        raise click.UsageError(f"--broker-list: {text!r} lists a broker twice.")
    return ids


def _execute(
    admin: AdminClient, wanted: Assignment, additional: bool, factor_may_change: bool, throttle: int | None
) -> None:
    client = admin.client
    ongoing = _ongoing(admin)
    if ongoing and not additional:
        raise CommandFailed(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override this "
            "and create a new partition assignment in addition to the existing one."
        )
    current = _current(client, sorted({partition.topic for partition in wanted}))
    before = {partition: current[partition] for partition in wanted if partition in current}
    click.echo(f"Current partition replica assignment\n\n{assignment_json(before)}\n")
    click.echo("Save this to use as the --reassignment-json-file option during rollback")
    if throttle is not None:
        _throttle(admin, throttle, wanted, before, ongoing)
    _alter(admin, wanted, factor_may_change=factor_may_change)
    names = ",".join(str(partition) for partition in sorted(wanted))
    click.echo(f"Successfully started partition reassignment{'s' if len(wanted) > 1 else ''} for {names}")


def _throttle(
    admin: AdminClient,
    rate: int,
    wanted: Assignment,
    before: Assignment,
    ongoing: Mapping[TopicPartition, OngoingReassignment],
) -> None:
    click.echo(
        "Warning: You must run --verify periodically, until the reassignment completes, "
        "to ensure the throttle is removed."
    )
    listed = throttled_replicas(wanted, before, {partition: each.replicas for partition, each in ongoing.items()})
    brokers = {broker for lists in (wanted, before) for replicas in lists.values() for broker in replicas}
    set_throttle(admin, rate, listed, brokers & _live_brokers(admin.client))
    click.echo(f"The inter-broker throttle limit was set to {rate} B/s")


def _clear_throttles(admin: AdminClient, wanted: Assignment, *, quiet: bool = False) -> None:
    if admin.is_controller:  # controllers know neither topics nor live brokers by Metadata
        brokers = {broker for replicas in wanted.values() for broker in replicas}
        topics = sorted({partition.topic for partition in wanted})
    else:
        brokers = _live_brokers(admin.client)
        found = topics_of_metadata(admin.client, sorted({each.topic for each in wanted}))
        topics = sorted(topic.name for topic in found)
    clear_throttles(admin, topics, brokers)
    if not quiet:
        click.echo(
            f"\nClearing broker-level throttles on broker{'s' if len(brokers) > 1 else ''} {_ids(sorted(brokers))}"
        )
        click.echo(f"Clearing topic-level throttles on topic{'s' if len(topics) > 1 else ''} {','.join(topics)}")


def _live_brokers(client: Client) -> set[int]:
    return {broker.node_id for broker in client.metadata([]).brokers}


def _verify(admin: AdminClient, wanted: Assignment, as_json: bool) -> bool:
    """Print the state of the reassignment; return whether the cluster has no ongoing reassignment."""
    client = admin.client
    ongoing = _ongoing(admin)
    current = _current(client, sorted({partition.topic for partition in wanted}), missing_ok=True)
    states = {partition: _state(partition, wanted[partition], current, ongoing) for partition in sorted(wanted)}
    if as_json:
        print_json([{"topic": key.topic, "partition": key.partition, "status": text} for key, text in states.items()])
        return not ongoing
    click.echo("Status of partition reassignment:")
    for partition, state in states.items():
        click.echo(state if state.startswith("There") else f"Reassignment of partition {partition} is {state}.")
    if is_shown():
        _show_progress(client, {partition: ongoing[partition] for partition in wanted if partition in ongoing})
    return not ongoing


def _show_progress(client: Client, moving: Mapping[TopicPartition, OngoingReassignment]) -> None:
    """Show how much of the moving partitions their new replicas have, on the terminal of standard error."""
    if moving:
        done, total = copied_bytes(client, moving)
        with ProgressBar("copied to new replicas", total, is_bytes=True, stays=True) as progress:
            progress.reach(done)


def _state(
    partition: TopicPartition,
    wanted: list[int],
    current: Assignment,
    ongoing: Mapping[TopicPartition, OngoingReassignment],
) -> str:
    if partition in ongoing:
        same = ongoing[partition].target == wanted
        return "still in progress" if same else f"There is another reassignment of partition {partition} in progress."
    if partition not in current:
        return f"There is no active reassignment of partition {partition}, but it does not exist."
    if current[partition] == wanted:
        return "completed"
    replicas = ",".join(map(str, current[partition]))
    expected = ",".join(map(str, wanted))
    return (
        f"There is no active reassignment of partition {partition}, but replica set is {replicas} rather than "
        f"{expected}."
    )


def _cancel(admin: AdminClient, wanted: Assignment) -> None:
    ongoing = _ongoing(admin)
    active = sorted(partition for partition in wanted if partition in ongoing)
    if active:
        _alter(admin, dict.fromkeys(active, None))
        names = ",".join(map(str, active))
        click.echo(f"Successfully cancelled partition reassignment{'s' if len(active) > 1 else ''} for: {names}")
    else:
        click.echo("None of the specified partition reassignments are active.")
    click.echo("None of the specified partition moves are active.")


def _list(admin: AdminClient, as_json: bool) -> None:
    ongoing = _ongoing(admin)
    if as_json:
        rows = [
            {
                "topic": key.topic,
                "partition": key.partition,
                "replicas": each.replicas,
                "addingReplicas": each.adding,
                "removingReplicas": each.removing,
            }
            for key, each in sorted(ongoing.items())
        ]
        print_json(rows)
        return
    if not ongoing:
        click.echo("No partition reassignments found.")
        return
    click.echo("Current partition reassignments:")
    for partition, each in sorted(ongoing.items()):
        coming = f" adding: {_ids(each.adding)}." if each.adding else ""
        going = f" removing: {_ids(each.removing)}." if each.removing else ""
        click.echo(f"{partition}: replicas: {_ids(each.replicas)}.{coming}{going}")


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def _current(client: Client, topics: list[str], *, missing_ok: bool = False) -> Assignment:
    """Return the replicas of all partitions of the topics. Raises CommandFailed for an unknown topic."""
    found = topics_of_metadata(client, topics)
    missing = sorted(set(topics) - {topic.name for topic in found})
    if missing and not missing_ok:
        raise CommandFailed(f"Topic {missing[0]} not found. `ottla topics --list` shows the topics.")
    return {
        TopicPartition(topic.name, partition.index): partition.replicas
        for topic in found
        for partition in topic.partitions
    }


def _ongoing(admin: AdminClient) -> dict[TopicPartition, OngoingReassignment]:
    """List the ongoing reassignments. Raises KafkaError."""
    request = ListPartitionReassignmentsRequest(admin.client.config.request_timeout_ms, None)
    answer = admin.call(request, ListPartitionReassignmentsResponse)
    raise_for(answer.error_code, "the reassignments", answer.error_message)
    return {
        TopicPartition(topic.name, each.partition_index): OngoingReassignment(
            each.replicas, each.adding_replicas, each.removing_replicas
        )
        for topic in answer.topics
        for each in topic.partitions
    }


def _alter(
    admin: AdminClient, wanted: Mapping[TopicPartition, list[int] | None], *, factor_may_change: bool = True
) -> None:
    """Request new replicas, or (None) a cancellation. Raises CommandFailed with all errors, or KafkaError."""
    topics: defaultdict[str, list[ReassignablePartition]] = defaultdict(list)
    for partition, replicas in sorted(wanted.items()):
        topics[partition.topic].append(ReassignablePartition(partition.partition, replicas))
    request = AlterPartitionReassignmentsRequest(
        admin.client.config.request_timeout_ms,
        factor_may_change,
        [ReassignableTopic(name, partitions) for name, partitions in topics.items()],
    )
    answer = admin.call(request, AlterPartitionReassignmentsResponse)
    raise_for(answer.error_code, "the reassignment", answer.error_message)
    refused = [(topic.name, each) for topic in answer.responses for each in topic.partitions if each.error_code]
    if refused:
        texts = (
            f"{topic}-{each.partition_index}: {each.error_message or ErrorCode(each.error_code).message}"
            for topic, each in refused
        )
        text = f"Error reassigning partition(s): {'; '.join(texts)}"
        raise CommandFailed(with_advice_for(text, (each.error_code for _, each in refused)))
