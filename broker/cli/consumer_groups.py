"""`ottla consumer-groups`: Kafka's kafka-consumer-groups. The work is done in `broker/cli/groups`."""

from collections.abc import Callable

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
from broker.cli.groups.offset_reset import ResetSpecification, ResetStrategy
from broker.cli.groups.offsets import delete_offsets, reset_offsets
from broker.cli.groups.report import Detail, describe_members, describe_offsets, describe_states, print_list
from broker.cli.groups.view import describe_group, list_groups
from broker.cli.shared.options import client_options, forbid, json_option, one_action
from broker.cli.shared.output import print_json
from broker.cli.shared.progress import with_progress
from broker.client import Client


@click.command("consumer-groups", short_help="Describe groups, reset and delete their offsets.")
@click.option("--list", "list_", is_flag=True, help="List groups.")
@click.option("--describe", is_flag=True, help="Show offsets and lag, members or state of groups.")
@click.option("--delete", is_flag=True, help="Delete groups that have no members.")
@click.option("--reset-offsets", is_flag=True, help="Set the offsets of groups that have no members.")
@click.option("--delete-offsets", is_flag=True, help="Delete committed offsets of a group.")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="A group; may be repeated.")
@click.option("--all-groups", is_flag=True, help="All groups.")
@click.option("--offsets", is_flag=True, help="With --describe: offsets and lag (the default).")
@click.option("--members", is_flag=True, help="With --describe: the members.")
@click.option(
    "--state",
    is_flag=False,
    flag_value=ANY,
    metavar="[STATE,…]",
    help="With --describe: the state. With --list: show states, or only groups in the given states.",
)
@click.option(
    "--type",
    "type_",
    is_flag=False,
    flag_value=ANY,
    metavar="[TYPE,…]",
    help="With --list: show types, or only groups of the given types (classic, consumer).",
)
@click.option("--verbose", is_flag=True, help="With --describe: epochs and assignments too.")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:P,…]", help="Topics, or partitions of them.")
@click.option("--all-topics", is_flag=True, help="With --reset-offsets: every topic with committed offsets.")
@reset_options
@click.option("--timeout", type=click.IntRange(min=1), metavar="MS", help="Time limit of a request.")
@client_options
@json_option
def consumer_groups(
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
    type_: str | None,
    verbose: bool,
    topics: tuple[str, ...],
    all_topics: bool,
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
    """Describe groups, reset and delete their offsets (kafka-consumer-groups)."""
    flags = {
        "list": list_,
        "describe": describe,
        "delete": delete,
        "reset-offsets": reset_offsets,
        "delete-offsets": delete_offsets,
    }
    action = one_action(flags)
    chosen = ChosenGroups(groups, all_groups, list_groups)
    check_choice(action, chosen, has_details=offsets or members or state is not None)
    if action != "reset-offsets":
        forbid({"execute": execute, "export": export, "dry-run": dry_run, "from-file": from_file}, "--reset-offsets")
    work: Callable[[Client], None]
    match action:
        case "list":
            work = _listing(state, type_, as_json)
        case "describe":
            detail = Detail.of(offsets=offsets, members=members, state=state is not None)
            work = _describing(chosen, detail, verbose, as_json)
        case "delete":
            work = _deleting(chosen)
        case "delete-offsets":
            work = _deleting_offsets(chosen, topics)
        case _:
            specification = reset_specification(
                {
                    ResetStrategy.TO_OFFSET: to_offset,
                    ResetStrategy.TO_EARLIEST: to_earliest or None,
                    ResetStrategy.TO_LATEST: to_latest or None,
                    ResetStrategy.TO_CURRENT: to_current or None,
                    ResetStrategy.SHIFT_BY: shift_by,
                    ResetStrategy.FROM_FILE: from_file,
                },
                to_datetime,
                by_duration,
            )
            work = _resetting(chosen, specification, topics, all_topics, from_file, execute, dry_run, export, as_json)
    run_on_groups(bootstrap_server, command_config, timeout, work)


def _listing(state: str | None, type_: str | None, as_json: bool) -> Callable[[Client], None]:
    states = chosen_states(state, _STATES)
    types = [] if type_ in (None, ANY) else [part.strip().capitalize() for part in (type_ or "").split(",")]
    return lambda client: print_list(
        list_groups(client, states, types), with_type=type_ is not None, with_state=state is not None, as_json=as_json
    )


_STATES = ("Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Dead", "Assigning", "Reconciling")


def _describing(groups: ChosenGroups, detail: Detail, verbose: bool, as_json: bool) -> Callable[[Client], None]:
    def describe(client: Client) -> None:
        names = groups.resolve(client)
        described = [describe_group(client, name) for name in with_progress(names, "groups", len(names))]
        for group in described:
            if not group.members and not as_json:
                click.echo(f"\nConsumer group '{group.id}' has no active members.", err=True)
        report = {Detail.OFFSETS: describe_offsets, Detail.MEMBERS: describe_members, Detail.STATE: describe_states}
        documents = [report[detail](client, group, verbose, as_json) for group in described]
        if as_json:
            print_json(documents)

    return describe


def _deleting(groups: ChosenGroups) -> Callable[[Client], None]:
    return lambda client: delete_groups(client, groups.resolve(client), "consumer")


def _deleting_offsets(groups: ChosenGroups, topics: tuple[str, ...]) -> Callable[[Client], None]:
    if len(groups.names) != 1 or not topics:
        raise click.UsageError("--delete-offsets needs one --group and at least one --topic.")
    return lambda client: delete_offsets(client, groups.names[0], topics)


def _resetting(
    groups: ChosenGroups,
    specification: ResetSpecification,
    topics: tuple[str, ...],
    all_topics: bool,
    from_file: str | None,
    execute: bool,
    dry_run: bool,
    export: bool,
    as_json: bool,
) -> Callable[[Client], None]:
    if execute and dry_run:
        raise click.UsageError("--execute and --dry-run exclude each other.")
    if from_file is None and all_topics == bool(topics):
        raise click.UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
    if not execute and not dry_run:
        click.echo(DRY_RUN_WARNING, err=True)
    return lambda client: reset_offsets(
        client,
        groups.resolve(client),
        specification,
        topics=None if all_topics else topics,
        file=from_file,
        execute=execute,
        export=export,
        as_json=as_json,
    )
