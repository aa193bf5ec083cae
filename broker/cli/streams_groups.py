"""`ottla streams-groups`: Kafka's kafka-streams-groups. The work is done in `broker/cli/groups`."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import click

from broker.cli.groups.choices import (
    ANY,
    DRY_RUN_WARNING,
    ChosenGroups,
    check_choice,
    chosen_states,
    delete_groups,
    reset_options,
    reset_specification,
    run_on_groups,
)
from broker.cli.groups.columns import print_group_list
from broker.cli.groups.offset_reset import ResetError, ResetSpecification, ResetStrategy
from broker.cli.groups.offsets import delete_offsets, reset_offsets
from broker.cli.groups.report import Detail
from broker.cli.groups.streams_report import (
    describe_streams_members,
    describe_streams_offsets,
    describe_streams_states,
)
from broker.cli.groups.streams_view import (
    committed_inputs,
    delete_internal_topics,
    describe_streams_group,
    list_streams_groups,
)
from broker.cli.shared.offsets import by_topic
from broker.cli.shared.options import client_options, forbid, json_option, one_action
from broker.cli.shared.output import print_json
from broker.client import Client
from protocol.errors import ErrorCode, KafkaError

_STATES = ("Empty", "NotReady", "Stable", "Assigning", "Reconciling", "Dead")


class _Inputs(NamedTuple):
    """The input topics that an action applies to: scopes such as "t" or "t:0,1", or all of the group's topology."""

    scopes: tuple[str, ...]
    are_all: bool

    def check(self, action: str) -> None:
        if bool(self.scopes) == self.are_all:
            raise click.UsageError(f"--{action} needs either --input-topic or --all-input-topics.")

    def of(self, client: Client, group_id: str) -> Sequence[str]:
        """Return the scopes for one group: all committed partitions of its input topics, or the given ones."""
        if not self.are_all:
            return self.scopes
        committed = by_topic(committed_inputs(client, describe_streams_group(client, group_id)))
        return [f"{topic}:{','.join(str(each.partition) for each in found)}" for topic, found in committed.items()]


class _InternalTopics(NamedTuple):
    """The internal topics to delete with the offsets."""

    names: tuple[str, ...]
    are_all: bool

    def of(self, client: Client, group_id: str) -> Sequence[str]:
        return describe_streams_group(client, group_id).internal_topics() if self.are_all else self.names


class _Reset(NamedTuple):
    """The options of --reset-offsets."""

    specification: ResetSpecification
    file: str | None
    execute: bool
    export: bool
    as_json: bool


@click.command("streams-groups", short_help="Describe Kafka Streams groups, reset and delete their offsets.")
@click.option("--list", "list_", is_flag=True, help="List groups.")
@click.option("--describe", is_flag=True, help="Show offset lag, members or state of groups.")
@click.option("--delete", is_flag=True, help="Delete groups that have no members.")
@click.option("--reset-offsets", is_flag=True, help="Set the offsets of groups that have no members.")
@click.option("--delete-offsets", is_flag=True, help="Delete committed offsets of a group.")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="A group; may be repeated.")
@click.option("--all-groups", is_flag=True, help="All streams groups.")
@click.option("--offsets", is_flag=True, help="With --describe: offset lag of the input topics (the default).")
@click.option("--members", is_flag=True, help="With --describe: the members and their tasks.")
@click.option(
    "--state",
    is_flag=False,
    flag_value=ANY,
    metavar="[STATE,…]",
    help="With --describe: the state. With --list: show states, or only groups in the given states.",
)
@click.option("--verbose", is_flag=True, help="With --describe: epochs, target tasks and offsets too.")
@click.option("--input-topic", "topics", multiple=True, metavar="TOPIC[:P,…]", help="Input topics, or partitions.")
@click.option("--all-input-topics", is_flag=True, help="All input topics of the group's topology.")
@click.option("--delete-all-internal-topics", is_flag=True, help="Delete the group's internal topics too.")
@click.option("--delete-internal-topic", "internal", multiple=True, metavar="TOPIC", help="Delete internal topics too.")
@reset_options
@click.option("--timeout", type=click.IntRange(min=1), metavar="MS", help="Time limit of a request.")
@client_options
@json_option
def streams_groups(
    list_: bool,
    describe: bool,
    delete: bool,
    reset_offsets: bool,
    delete_offsets: bool,
    groups: tuple[str, ...],
    all_groups: bool,
    offsets: bool,
    members: bool,
    state: str | None,
    verbose: bool,
    topics: tuple[str, ...],
    all_input_topics: bool,
    delete_all_internal_topics: bool,
    internal: tuple[str, ...],
    to_offset: int | None,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_datetime: str | None,
    by_duration: str | None,
    shift_by: int | None,
    from_file: str | None,
    dry_run: bool,
    execute: bool,
    export: bool,
    timeout: int | None,
    bootstrap_server: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Describe Kafka Streams groups, reset and delete their offsets (kafka-streams-groups)."""
    flags = {"list": list_, "describe": describe, "delete": delete}
    action = one_action(flags | {"reset-offsets": reset_offsets, "delete-offsets": delete_offsets})
    chosen = ChosenGroups(groups, all_groups, list_streams_groups)
    check_choice(action, chosen, has_details=offsets or members or state is not None)
    if action != "reset-offsets":
        forbid({"execute": execute, "export": export, "dry-run": dry_run, "from-file": from_file}, "--reset-offsets")
        forbid({"delete-internal-topic": internal}, "--reset-offsets")
    inputs, internal_topics = _Inputs(topics, all_input_topics), _InternalTopics(internal, delete_all_internal_topics)
    work: Callable[[Client], None]
    match action:
        case "list":
            work = _listing(state, as_json)
        case "describe":
            detail = Detail.of(offsets=offsets, members=members, state=state is not None)
            work = _describing(chosen, detail, verbose, as_json)
        case "delete":
            work = _deleting(chosen, internal_topics)
        case "delete-offsets":
            work = _deleting_offsets(chosen, inputs)
        case _:
            given: dict[ResetStrategy, int | str | bool | None] = {
                ResetStrategy.TO_OFFSET: to_offset,
                ResetStrategy.TO_EARLIEST: to_earliest or None,
                ResetStrategy.TO_LATEST: to_latest or None,
                ResetStrategy.TO_CURRENT: to_current or None,
                ResetStrategy.SHIFT_BY: shift_by,
                ResetStrategy.FROM_FILE: from_file,
            }
            specification = reset_specification(given, to_datetime, by_duration)
            reset = _Reset(specification, from_file, execute, export, as_json)
            work = _resetting(chosen, inputs, internal_topics, reset, is_dry_run=dry_run)
    run_on_groups(bootstrap_server, command_config, timeout, work)


def _listing(state: str | None, as_json: bool) -> Callable[[Client], None]:
    states = chosen_states(state, _STATES)

    def list_groups(client: Client) -> None:
        # Apache Kafka's brokers do not know the state NotReady by its name, so the filter is applied here.
        rows = [(each.group_id, each.group_state) for each in list_streams_groups(client)]
        rows = [row for row in rows if not states or row[1] in states]
        if as_json:
            print_json([{"groupId": group_id, "state": each} for group_id, each in rows])
        else:
            print_group_list(rows, with_state=state is not None)

    return list_groups


def _describing(groups: ChosenGroups, detail: Detail, verbose: bool, as_json: bool) -> Callable[[Client], None]:
    def describe(client: Client) -> None:
        described = [describe_streams_group(client, name) for name in groups.resolve(client)]
        for group in described:
            if not group.described.members and not as_json:
                click.echo(f"\nStreams group '{group.group_id}' has no active members.", err=True)
        report = {
            Detail.OFFSETS: describe_streams_offsets,
            Detail.MEMBERS: describe_streams_members,
            Detail.STATE: describe_streams_states,
        }
        documents = [report[detail](client, group, verbose, as_json) for group in described]
        if as_json:
            print_json(documents)

    return describe


def _deleting(groups: ChosenGroups, internal: _InternalTopics) -> Callable[[Client], None]:
    def delete(client: Client) -> None:
        names = groups.resolve(client)
        topics = {name: internal.of(client, name) for name in names}
        delete_groups(client, names, "streams")
        for name in names:
            delete_internal_topics(client, name, topics[name])

    return delete


def _deleting_offsets(groups: ChosenGroups, inputs: _Inputs) -> Callable[[Client], None]:
    if len(groups.names) != 1:
        raise click.UsageError("--delete-offsets needs one --group.")
    inputs.check("delete-offsets")
    (group_id,) = groups.names
    return lambda client: delete_offsets(client, group_id, inputs.of(client, group_id))


def _resetting(
    groups: ChosenGroups, inputs: _Inputs, internal: _InternalTopics, reset: _Reset, *, is_dry_run: bool
) -> Callable[[Client], None]:
    if reset.execute and is_dry_run:
        raise click.UsageError("--execute and --dry-run exclude each other.")
    if reset.file is None:
        inputs.check("reset-offsets")
    if not reset.execute:
        forbid({"delete-internal-topic": internal.names, "delete-all-internal-topics": internal.are_all}, "--execute")
    if not reset.execute and not is_dry_run:
        click.echo(DRY_RUN_WARNING, err=True)

    def run(client: Client) -> None:
        for name in groups.resolve(client):
            reset_offsets(
                client,
                [name],
                reset.specification,
                topics=() if reset.file is not None else inputs.of(client, name),
                file=reset.file,
                execute=reset.execute,
                export=reset.export,
                as_json=reset.as_json,
                state_of=_state_of,
            )
            if reset.execute:
                delete_internal_topics(client, name, internal.of(client, name))

    return run


def _state_of(client: Client, group_id: str) -> str:
    """Return the state of the group; a group of another type has none that allows a reset."""
    try:
        return describe_streams_group(client, group_id).described.group_state
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            raise ResetError(f"There is no streams group '{group_id}'.") from error
        raise
