"""`ottla groups`: Kafka's kafka-groups, the groups of all types (KIP-1043)."""

from collections.abc import Sequence

import click

from broker.cli.groups.view import CONSUMER_PROTOCOL, listed_groups
from broker.cli.shared.options import client_options, json_option, one_action
from broker.cli.shared.output import print_columns, print_json, width_of
from broker.cli.shared.session import session
from protocol.messages.list_groups import ListedGroup

CLASSIC = "classic"
TYPES = (CLASSIC, "consumer", "share", "streams")
HEADINGS = ("GROUP", "TYPE", "PROTOCOL")
_LEAST_WIDTH = 20


@click.command("groups", short_help="List the groups of all types.")
@click.option("--list", "list_", is_flag=True, help="List the groups.")
@click.option("--group-type", metavar="TYPE", help=f"Only groups of this type: {', '.join(TYPES)}.")
@click.option("--protocol", metavar="PROTOCOL", help="Only groups of this protocol type.")
@click.option(
    "--consumer", is_flag=True, help="Only consumer groups, classic ones and groups without members included."
)
@click.option("--share", is_flag=True, help="Only share groups.")
@click.option("--streams", is_flag=True, help="Only groups of Kafka Streams applications with their own protocol.")
@client_options
@json_option
def groups(
    list_: bool,
    group_type: str | None,
    protocol: str | None,
    consumer: bool,
    share: bool,
    streams: bool,
    bootstrap_server: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """List groups of all types with their type and protocol (kafka-groups)."""
    if not list_:
        raise click.UsageError("Command must include exactly one action: --list.")
    kinds = {"consumer": consumer, "share": share, "streams": streams}
    if any(kinds.values()):
        one_action(kinds | {"group-type": group_type is not None, "protocol": protocol is not None})
    if group_type is not None and group_type.lower() not in TYPES:
        raise click.UsageError(f"--group-type {group_type}: use one of {', '.join(TYPES)}.")
    types = {group_type.lower()} if group_type is not None else {name for name, chosen in kinds.items() if chosen}

    def is_wanted(group: ListedGroup) -> bool:
        kind = group.group_type.lower() or CLASSIC
        if consumer and kind == CLASSIC:
            return group.protocol_type in ("", CONSUMER_PROTOCOL)
        return (not types or kind in types) and (protocol is None or group.protocol_type == protocol)

    with session(bootstrap_server, command_config) as client:
        found = client.retrying(lambda: listed_groups(client, (), ()))
    _print(sorted(filter(is_wanted, found), key=lambda group: group.group_id), as_json)


def _print(found: Sequence[ListedGroup], as_json: bool) -> None:
    if as_json:
        print_json(
            [{"group": g.group_id, "type": g.group_type.lower() or CLASSIC, "protocol": g.protocol_type} for g in found]
        )
        return
    rows = [(g.group_id, g.group_type.capitalize() or CLASSIC.capitalize(), g.protocol_type) for g in found]
    first = width_of((row[0] for row in rows), _LEAST_WIDTH)
    print_columns(HEADINGS, rows, [f"{{:<{first}}}", f"{{:<{_LEAST_WIDTH}}}", f"{{:<{_LEAST_WIDTH}}}"])
