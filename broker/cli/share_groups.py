"""`ottla share-groups`: Kafka's kafka-share-groups (KIP-932). The work is done in `broker/cli/groups`."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import click

from broker.cli.groups.choices import ANY, ChosenGroups, check_choice, chosen_states, delete_groups, run_on_groups
from broker.cli.groups.columns import print_group_list
from broker.cli.groups.offset_reset import ResetError, ResetSpecification, ResetStrategy, parse_datetime_ms
from broker.cli.groups.offsets import expand, planned_offsets, print_plan
from broker.cli.groups.report import Detail
from broker.cli.groups.share_report import (
    describe_share_members,
    describe_share_offsets,
    describe_share_states,
)
from broker.cli.groups.share_view import (
    alter_share_offsets,
    delete_share_offsets,
    describe_share_group,
    list_share_groups,
    share_offsets,
)
from broker.cli.groups.view import DEAD, EMPTY
from broker.cli.shared.advice import with_advice_for
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import client_options, forbid, json_option, one_action
from broker.cli.shared.output import print_columns, print_json, width_of
from broker.client import Client
from protocol.errors import ErrorCode, KafkaError

_STATES = ("Empty", "Stable", "Dead")


class _Reset(NamedTuple):
    """The options of --reset-offsets. `topics` are scopes such as "t" or "t:0,1"; None means all of the group."""

    specification: ResetSpecification
    topics: Sequence[str] | None
    execute: bool
    as_json: bool


@click.command("share-groups", short_help="Describe share groups, reset and delete their offsets.")
@click.option("--list", "list_", is_flag=True, help="List groups.")
@click.option("--describe", is_flag=True, help="Show start offsets, members or state of groups.")
@click.option("--delete", is_flag=True, help="Delete groups that have no members.")
@click.option("--reset-offsets", is_flag=True, help="Set the start offsets of a group that has no members.")
@click.option("--delete-offsets", is_flag=True, help="Delete the offsets of topics from a group.")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="A group; may be repeated.")
@click.option("--all-groups", is_flag=True, help="All share groups.")
@click.option("--offsets", is_flag=True, help="With --describe: start offsets and lag (the default).")
@click.option("--members", is_flag=True, help="With --describe: the members.")
@click.option(
    "--state",
    is_flag=False,
    flag_value=ANY,
    metavar="[STATE,…]",
    help="With --describe: the state. With --list: show states, or only groups in the given states.",
)
@click.option("--verbose", is_flag=True, help="With --describe: epochs too.")
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC[:P,…]", help="Topics; partitions with --reset-offsets alone."
)
@click.option("--all-topics", is_flag=True, help="With --reset-offsets: every topic with offsets in the group.")
@click.option("--to-earliest", is_flag=True, help="Reset to the earliest offset.")
@click.option("--to-latest", is_flag=True, help="Reset to the latest offset.")
@click.option("--to-datetime", metavar="YYYY-MM-DDThh:mm:ss.sss", help="Reset to the first record since that time.")
@click.option("--dry-run", is_flag=True, help="Show what --reset-offsets would do.")
@click.option("--execute", is_flag=True, help="Apply --reset-offsets.")
@click.option("--timeout", type=click.IntRange(min=1), metavar="MS", help="Time limit of a request.")
@client_options
@json_option
def share_groups(
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
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_datetime: str | None,
    dry_run: bool,
    execute: bool,
    timeout: int | None,
    bootstrap_server: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Describe share groups, reset and delete their offsets (kafka-share-groups)."""
    flags = {"list": list_, "describe": describe, "delete": delete}
    action = one_action(flags | {"reset-offsets": reset_offsets, "delete-offsets": delete_offsets})
    chosen = ChosenGroups(groups, all_groups, list_share_groups)
    check_choice(action, chosen, has_details=offsets or members or state is not None)
    if action != "reset-offsets":
        forbid({"execute": execute, "dry-run": dry_run, "all-topics": all_topics}, "--reset-offsets")
        forbid({"to-earliest": to_earliest, "to-latest": to_latest, "to-datetime": to_datetime}, "--reset-offsets")
    if action not in ("reset-offsets", "delete-offsets"):
        forbid({"topic": topics}, "--reset-offsets or --delete-offsets")
    work: Callable[[Client], None]
    match action:
        case "list":
            work = _listing(state, as_json)
        case "describe":
            if state not in (None, ANY):
                raise click.UsageError("--state takes no value with --describe.")
            detail = Detail.of(offsets=offsets, members=members, state=state is not None)
            work = _describing(chosen, detail, verbose, as_json)
        case "delete":
            work = _deleting(chosen)
        case "delete-offsets":
            work = _deleting_offsets(_single(chosen, action), topics)
        case _:
            if dry_run == execute:
                raise click.UsageError("--reset-offsets needs either --dry-run or --execute.")
            if bool(topics) == all_topics:
                raise click.UsageError("--reset-offsets needs either --topic or --all-topics.")
            specification = _specification(to_earliest, to_latest, to_datetime)
            reset = _Reset(specification, None if all_topics else topics, execute, as_json)
            work = _resetting(_single(chosen, action), reset)
    run_on_groups(bootstrap_server, command_config, timeout, work)


def _single(groups: ChosenGroups, action: str) -> str:
    if len(groups.names) != 1:
        raise click.UsageError(f"--{action} needs one --group.")
    return groups.names[0]


def _specification(to_earliest: bool, to_latest: bool, to_datetime: str | None) -> ResetSpecification:
    if to_earliest + to_latest + (to_datetime is not None) != 1:
        raise click.UsageError("--reset-offsets needs exactly one of --to-earliest, --to-latest and --to-datetime.")
    if to_datetime is None:
        return ResetSpecification(ResetStrategy.TO_EARLIEST if to_earliest else ResetStrategy.TO_LATEST)
    try:
        return ResetSpecification(ResetStrategy.BY_TIME, parse_datetime_ms(to_datetime))
    except ResetError as error:
        raise click.UsageError(str(error)) from error


def _listing(state: str | None, as_json: bool) -> Callable[[Client], None]:
    states = chosen_states(state, _STATES)

    def list_groups(client: Client) -> None:
        rows = [(each.group_id, each.group_state) for each in list_share_groups(client, states)]
        if as_json:
            print_json([{"groupId": group_id, "state": each} for group_id, each in rows])
        else:
            print_group_list(rows, with_state=state is not None)

    return list_groups


def _describing(groups: ChosenGroups, detail: Detail, verbose: bool, as_json: bool) -> Callable[[Client], None]:
    def describe(client: Client) -> None:
        described = [describe_share_group(client, name) for name in groups.resolve(client)]
        for group in described:
            if not group.described.members and not as_json:
                click.echo(f"\nShare group '{group.group_id}' has no active members.", err=True)
        report = {
            Detail.OFFSETS: describe_share_offsets,
            Detail.MEMBERS: describe_share_members,
            Detail.STATE: describe_share_states,
        }
        documents = [report[detail](client, group, verbose, as_json) for group in described]
        if as_json:
            print_json(documents)

    return describe


def _deleting(groups: ChosenGroups) -> Callable[[Client], None]:
    def delete(client: Client) -> None:
        known = {each.group_id for each in list_share_groups(client)}
        names = sorted(known) if groups.all_groups else list(groups.names)
        for name in names:
            if name not in known:  # the request would delete a group of another type
                raise CommandFailed(f"Group '{name}' is not a share group.")
        delete_groups(client, names, "share")

    return delete


def _deleting_offsets(group_id: str, topics: Sequence[str]) -> Callable[[Client], None]:
    if not topics:
        raise click.UsageError("--delete-offsets needs --topic.")

    def delete(client: Client) -> None:
        results = delete_share_offsets(client, group_id, sorted(set(topics)))
        cells = [
            (topic, f"Error: {message or code.message}" if code else "Successful") for topic, code, message in results
        ]
        click.echo()
        print_columns(["TOPIC", "STATUS"], cells, [f"{{:<{width_of((row[0] for row in cells), 15)}}}", "{}"])
        if any(code for _, code, _ in results):
            text = f"some offsets of group {group_id} were not deleted; see the errors above."
            raise CommandFailed(with_advice_for(text, (code for _, code, _ in results)))

    return delete


def _resetting(group_id: str, reset: _Reset) -> Callable[[Client], None]:
    def run(client: Client) -> None:
        _require_empty(client, group_id)
        scope = sorted(share_offsets(client, group_id)) if reset.topics is None else expand(client, reset.topics)
        plan = planned_offsets(client, reset.specification, scope, {})
        if reset.execute:
            alter_share_offsets(client, group_id, plan)
        print_plan({group_id: plan}, as_json=reset.as_json)

    return run


def _require_empty(client: Client, group_id: str) -> None:
    """Check that no member would see the change; a missing group is created by it. Raises ResetError, KafkaError."""
    try:
        state = describe_share_group(client, group_id).described.group_state
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return
    if state not in (EMPTY, DEAD):
        raise ResetError(f"Share group '{group_id}' is not empty: its state is {state}.")
