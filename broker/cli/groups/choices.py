"""Options that the commands of groups share: the choice of groups, of an offset reset, and the deletion of groups."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from broker.cli.groups.offset_reset import (
    ResetError,
    ResetSpecification,
    ResetStrategy,
    parse_datetime_ms,
    parse_duration_ms,
)
from broker.cli.shared.advice import with_advice_for
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.session import session
from broker.client import Client
from protocol.errors import ErrorCode, KafkaError
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.list_groups import ListedGroup

F = TypeVar("F", bound=Callable[..., object])

DRY_RUN_WARNING = "WARN: No action will be performed as the --execute option is missing."
ANY = "*"
"""The value of --state and --type when they are given without one."""


_RESET_OPTIONS = (
    click.option("--to-offset", type=int, metavar="N", help="Reset to this offset."),
    click.option("--to-earliest", is_flag=True, help="Reset to the earliest offset."),
    click.option("--to-latest", is_flag=True, help="Reset to the latest offset."),
    click.option("--to-current", is_flag=True, help="Reset to the committed offset, or to the latest without one."),
    click.option("--to-datetime", metavar="YYYY-MM-DDThh:mm:ss.sss", help="Reset to the first record since that time."),
    click.option("--by-duration", metavar="PnDTnHnMnS", help="Reset to the first record within the past duration."),
    click.option("--shift-by", type=int, metavar="N", help="Move by N offsets, backwards if negative."),
    click.option("--from-file", metavar="FILE", type=click.Path(), help="Reset to the offsets of a CSV file."),
    click.option("--dry-run", is_flag=True, help="Show what --reset-offsets would do."),
    click.option("--execute", is_flag=True, help="Apply --reset-offsets."),
    click.option("--export", is_flag=True, help="Print the offsets as CSV."),
)


def reset_options(command: F) -> F:
    """Add the options of --reset-offsets: the new offsets, and what to do with them."""
    for option in reversed(_RESET_OPTIONS):
        command = option(command)
    return command


@lazy_dataclass(frozen=True, slots=True)
class ChosenGroups:
    """The groups that an action applies to; `listed` lists all of the command's type."""

    names: tuple[str, ...]
    all_groups: bool
    listed: Callable[[Client], Sequence[ListedGroup]]

    def resolve(self, client: Client) -> list[str]:
        return sorted(group.group_id for group in self.listed(client)) if self.all_groups else list(self.names)


def check_choice(action: str, groups: ChosenGroups, *, has_details: bool) -> None:
    """Raise UsageError for options that do not fit the action."""
    if groups.names and groups.all_groups:
        raise click.UsageError("--group and --all-groups exclude each other.")
    if action != "list" and not (groups.names or groups.all_groups):
        raise click.UsageError(f"--{action} needs --group or --all-groups.")
    if action == "list" and (groups.names or groups.all_groups):
        raise click.UsageError("--list does not accept --group.")
    if action not in ("list", "describe") and has_details:
        raise click.UsageError("--offsets, --members and --state require --describe.")


def chosen_states(text: str | None, known: Sequence[str]) -> list[str]:
    """Return the names of the states in --state; none of them means all. Raises UsageError for an unknown one."""
    if text in (None, ANY):
        return []
    names = {name.lower(): name for name in known}
    parts = [part.strip() for part in (text or "").split(",")]
    for part in parts:
        if part.lower() not in names:
            raise click.UsageError(f"--state {part}: use one of {', '.join(known)}.")
    return [names[part.lower()] for part in parts]


def reset_specification(
    given: dict[ResetStrategy, int | str | bool | None], to_datetime: str | None, by_duration: str | None
) -> ResetSpecification:
    """Return the reset specification. Raises UsageError for none or several."""
    chosen = [(strategy, value) for strategy, value in given.items() if value is not None]
    try:
        if to_datetime is not None:
            chosen.append((ResetStrategy.BY_TIME, parse_datetime_ms(to_datetime)))
        if by_duration is not None:
            chosen.append((ResetStrategy.BY_TIME, int(time.time() * 1000) - parse_duration_ms(by_duration)))
    except ResetError as error:
        raise click.UsageError(str(error)) from error
    if len(chosen) != 1:
        raise click.UsageError(
            "--reset-offsets needs exactly one of --to-offset, --to-earliest, --to-latest, --to-current,"
            " --to-datetime, --by-duration, --shift-by and --from-file."
        )
    strategy, value = chosen[0]
    return ResetSpecification(strategy, value if isinstance(value, int) and not isinstance(value, bool) else 0)


def delete_groups(client: Client, names: Sequence[str], kind: str) -> None:
    """Delete groups without members, and print the outcome. Raises CommandFailed if a deletion failed."""
    deleted, failed, codes = [], [], []
    for name in names:
        response = client.coordinator(name).call(DeleteGroupsRequest(groups_names=[name]), DeleteGroupsResponse)
        code = ErrorCode(response.results[0].error_code)
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            raise KafkaError(code)
        if code:
            codes.append(code)
            failed.append(f"Group '{name}' could not be deleted due to: {code.message}")
        else:
            deleted.append(name)
    quoted = ", ".join(f"'{name}'" for name in deleted)
    if failed:
        if deleted:
            click.echo(f"These {kind} groups were deleted successfully: {quoted}")
        text = f"Deletion of some {kind} groups failed:\n" + "\n".join(f"* {each}" for each in failed)
        raise CommandFailed(with_advice_for(text, codes))
    click.echo(f"Deletion of requested {kind} groups ({quoted}) was successful.")


def run_on_groups(
    bootstrap_server: str, command_config: str | None, timeout: int | None, work: Callable[[Client], None]
) -> None:
    """Run an action in a session, again after transient errors. `timeout` limits each request, in ms.

    Raises CommandFailed for an offset reset that is not possible.
    """
    overrides = {} if timeout is None else {"default.api.timeout.ms": str(timeout)}
    with session(bootstrap_server, command_config, overrides) as client:
        try:
            client.retrying(lambda: work(client))
        except ResetError as error:
            raise CommandFailed(str(error)) from error
