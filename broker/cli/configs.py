"""`ottla configs`: Kafka's kafka-configs.

Entities: topics, brokers, groups, client-metrics subscriptions, quotas, and SCRAM credentials of users.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import click

from broker.cli.shared.advice import with_advice
from broker.cli.shared.client_quotas import ENTITY_TYPES, QuotaSelection, alter_quotas, check_selection, describe_quotas
from broker.cli.shared.cluster_view import checked_configs, configs_request
from broker.cli.shared.config_text import parse_additions, printed_value
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import forbid, json_option, one_action
from broker.cli.shared.output import print_json
from broker.cli.shared.scram_credentials import alter_credentials, names_credentials
from broker.cli.shared.session import read_properties
from broker.cli.shared.target import AdminClient, Target, target_options
from broker.client import Client, raise_for
from protocol.errors import ErrorCode, KafkaError
from protocol.lazy_dataclass import lazy_dataclass
from protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

SET = 0
DELETE = 1

SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}


@lazy_dataclass(frozen=True, slots=True)
class _Kind:
    """A type of entity: its resource type on the wire, its name in messages, and the source of its own configs."""

    resource_type: int
    singular: str
    source: int


KINDS = {
    "topics": _Kind(2, "topic", 1),
    "brokers": _Kind(4, "broker", 2),
    "client-metrics": _Kind(16, "client-metric", 7),
    "groups": _Kind(32, "group", 8),
}
DEFAULT_BROKER_SOURCE = 3
UNSUPPORTED_TYPES = {"broker-loggers": "log levels"}


@lazy_dataclass(frozen=True, slots=True)
class _Entity:
    """The entities that the options select. `name` None: all of the type; empty: the default of all brokers."""

    kind: _Kind
    name: str | None

    @property
    def is_broker_default(self) -> bool:
        return self.kind is KINDS["brokers"] and self.name == ""


class _Changes(NamedTuple):
    """Configs to set, and keys to remove."""

    additions: dict[str, str]
    deletions: Sequence[str]


class _ConfigsCommand(click.Command):
    """Keeps the order of `--entity-name` and `--entity-default`, which belong to `--entity-type` in this order."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, with an empty name in place of each `--entity-default`."""
        expanded = [["--entity-name", ""] if arg == "--entity-default" else [arg] for arg in args]
        return super().parse_args(ctx, [arg for group in expanded for arg in group])


@click.command("configs", cls=_ConfigsCommand, short_help="Describe or alter configurations.")
@click.option("--describe", is_flag=True, help="Show the configs of an entity.")
@click.option("--alter", is_flag=True, help="Set or remove configs of an entity.")
@click.option("--all", "all_", is_flag=True, help="With --describe: show defaults and static configs too.")
@click.option("--add-config", metavar="K=V[,…]", help="Configs to set; commas inside a value go into [brackets].")
@click.option("--add-config-file", metavar="FILE", type=click.Path(), help="Configs to set, as properties.")
@click.option("--delete-config", metavar="K[,…]", help="Configs to remove.")
@click.option(
    "--entity-type",
    multiple=True,
    type=click.Choice([*KINDS, *ENTITY_TYPES, *UNSUPPORTED_TYPES]),
    help="Type of the entity; users and clients can be given together.",
)
@click.option(
    "--entity-name",
    multiple=True,
    metavar="NAME",
    help="Topic, broker id, group, client-metrics subscription, user, client id or IP address.",
)
@click.option(
    "--entity-default",
    is_flag=True,
    expose_value=False,
    help="Select the default of all brokers, users, clients or ips.",
)
@click.option("--topic", metavar="TOPIC", help="Short for --entity-type topics --entity-name TOPIC.")
@click.option("--broker", metavar="ID", help="Short for --entity-type brokers --entity-name ID.")
@click.option("--broker-defaults", is_flag=True, help="Short for --entity-type brokers --entity-default.")
@click.option("--group", metavar="GROUP", help="Short for --entity-type groups --entity-name GROUP.")
@click.option("--client-metrics", metavar="NAME", help="Short for --entity-type client-metrics --entity-name NAME.")
@click.option("--user", metavar="USER", help="Short for --entity-type users --entity-name USER.")
@click.option("--user-defaults", is_flag=True, help="Short for --entity-type users --entity-default.")
@click.option("--client", metavar="ID", help="Short for --entity-type clients --entity-name ID.")
@click.option("--client-defaults", is_flag=True, help="Short for --entity-type clients --entity-default.")
@click.option("--ip", metavar="IP", help="Short for --entity-type ips --entity-name IP.")
@click.option("--ip-defaults", is_flag=True, help="Short for --entity-type ips --entity-default.")
@target_options
@json_option
def configs(
    describe: bool,
    alter: bool,
    all_: bool,
    add_config: str | None,
    add_config_file: str | None,
    delete_config: str | None,
    entity_type: tuple[str, ...],
    entity_name: tuple[str, ...],
    topic: str | None,
    broker: str | None,
    broker_defaults: bool,
    group: str | None,
    client_metrics: str | None,
    user: str | None,
    user_defaults: bool,
    client: str | None,
    client_defaults: bool,
    ip: str | None,
    ip_defaults: bool,
    bootstrap_server: str | None,
    bootstrap_controller: str | None,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Describe or alter configurations (kafka-configs)."""
    action = one_action({"describe": describe, "alter": alter})
    shorts = {"topics": topic, "groups": group, "client-metrics": client_metrics}
    shorts |= {"users": "" if user_defaults else user, "clients": "" if client_defaults else client}
    shorts |= {"ips": "" if ip_defaults else ip, "brokers": "" if broker_defaults else broker}
    kinds, names = _selected(entity_type, entity_name, shorts)
    if action == "describe":
        forbid(
            {"add-config": add_config, "add-config-file": add_config_file, "delete-config": delete_config}, "--alter"
        )
    changes = None if action == "describe" else _changes(kinds, names, add_config, add_config_file, delete_config)
    work = _user_work(kinds, names, changes, as_json) or _config_work(kinds, names, changes, all_, as_json)
    target = Target.of(bootstrap_server, bootstrap_controller, command_config)
    if target.is_controller:
        _check_controller_serves(kinds[0], names, is_change=changes is not None)
    with target.open() as admin:
        admin.client.retrying(lambda: work(admin))


def _check_controller_serves(kind: str, names: tuple[str, ...], *, is_change: bool) -> None:
    """Refuse what controllers do not serve, as in Kafka: quotas, credentials, and configs of others than nodes."""
    if kind in KINDS and (is_change or (kind == "brokers" and names and names[0])):
        return
    what = "changes of" if is_change else "descriptions of"
    raise CommandFailed(f"controllers do not serve {what} {kind}; use --bootstrap-server with the address of a broker.")


def _selected(
    kinds: tuple[str, ...], names: tuple[str, ...], shorts: dict[str, str | None]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the selected types and their names. Raises UsageError, or CommandFailed for unsupported types."""
    if not kinds:
        kinds = tuple(kind for kind, name in shorts.items() if name is not None)
        names = tuple(name for name in shorts.values() if name is not None)
    for kind in kinds:
        if kind in UNSUPPORTED_TYPES:
            raise CommandFailed(f"--entity-type {kind}: {UNSUPPORTED_TYPES[kind]} are not implemented in this version.")
    if not kinds:
        raise click.UsageError("At least one entity type must be specified")
    if len(kinds) > 1 and not ENTITY_TYPES.keys() >= set(kinds):
        raise click.UsageError("Only one entity can be named.")
    return kinds, names


def _changes(
    kinds: tuple[str, ...],
    names: tuple[str, ...],
    add_config: str | None,
    add_config_file: str | None,
    delete_config: str | None,
) -> _Changes:
    """Return the configs to set and to remove. Raises UsageError."""
    if len(names) != len(kinds):
        raise click.UsageError(f"An entity name must be specified with --alter of {' and '.join(kinds)}")
    if add_config is None and add_config_file is None and delete_config is None:
        raise click.UsageError("At least one of --add-config, --add-config-file or --delete-config is needed.")
    if add_config is not None and add_config_file is not None:
        raise click.UsageError("Only one of --add-config and --add-config-file can be given.")
    try:
        additions = read_properties(add_config_file) if add_config is None else parse_additions(add_config)
    except ValueError as error:
        raise click.UsageError(f"--add-config: {error}") from error
    return _Changes(additions, [key.strip() for key in (delete_config or "").split(",") if key.strip()])


def _user_work(
    kinds: tuple[str, ...], names: tuple[str, ...], changes: _Changes | None, as_json: bool
) -> Callable[[AdminClient], None] | None:
    """Return the work on quotas and credentials of users, clients or addresses; None for other entities."""
    if kinds[0] not in ENTITY_TYPES:
        return None
    selection = QuotaSelection(kinds, names)
    check_selection(selection)
    if changes is None:
        return lambda admin: describe_quotas(admin.client, selection, as_json=as_json)
    if names_credentials(kinds, names, (*changes.additions, *changes.deletions)):
        return lambda admin: alter_credentials(admin.client, names[0], changes.additions, changes.deletions)
    return lambda admin: alter_quotas(admin.client, selection, changes.additions, changes.deletions)


def _config_work(
    kinds: tuple[str, ...], names: tuple[str, ...], changes: _Changes | None, show_all: bool, as_json: bool
) -> Callable[[AdminClient], None]:
    if len(names) > 1:
        raise click.UsageError("More entity names specified than entity types")
    name = names[0] if names else None
    entity = _Entity(KINDS[kinds[0]], name)
    if changes is None or name is None:
        return lambda admin: _describe(admin, entity, show_all, as_json)
    return lambda admin: _alter(admin, entity, name, changes.additions, changes.deletions)


def _alter(admin: AdminClient, entity: _Entity, name: str, additions: dict[str, str], deletions: Sequence[str]) -> None:
    node = _node_of(entity, name)
    if not admin.is_controller:
        _check_deletions(admin, entity, name, deletions)
    changes = [AlterableConfig(key, SET, value) for key, value in additions.items()]
    changes += [AlterableConfig(key, DELETE, None) for key in deletions]
    request = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(entity.kind.resource_type, name, changes)])
    if admin.is_controller or node is None:
        response = admin.call(request, IncrementalAlterConfigsResponse)
    else:
        response = admin.call_node(node, request, IncrementalAlterConfigsResponse)
    for result in response.responses:
        raise_for(result.error_code, f"{entity.kind.singular} {name}", result.error_message)
    if entity.is_broker_default:
        click.echo("Completed updating default config for brokers in the cluster.")
    else:
        click.echo(f"Completed updating config for {entity.kind.singular} {name}.")


def _check_deletions(admin: AdminClient, entity: _Entity, name: str, deletions: Sequence[str]) -> None:
    """Raise CommandFailed for a key that is not set on the entity, or KafkaError for an entity that does not exist."""
    current = _described(admin, entity, name)
    missing = sorted(set(deletions) - {config.name for config in current.configs if _is_own(entity, config)})
    if missing:
        raise CommandFailed(f"Invalid config(s): {','.join(missing)}")


def _describe(admin: AdminClient, entity: _Entity, show_all: bool, as_json: bool) -> None:
    described = []
    for name in _names(admin.client, entity):
        try:
            described.append(_described(admin, _Entity(entity.kind, name), name))
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            text = f"The topic '{name}' doesn't exist and doesn't have dynamic config."
            raise CommandFailed(with_advice(text, error)) from error
    chosen = [
        (result, [c for c in result.configs if show_all or _is_own(_Entity(entity.kind, result.resource_name), c)])
        for result in described
    ]
    if as_json:
        print_json([_document(entity.kind, result, configs) for result, configs in chosen])
        return
    for result, configs in chosen:
        _print(_Entity(entity.kind, result.resource_name), show_all, configs)


def _described(admin: AdminClient, entity: _Entity, name: str) -> DescribeConfigsResult:
    request = configs_request([(entity.kind.resource_type, name)])
    node = _node_of(entity, name)
    if node is None:
        response = admin.call(request, DescribeConfigsResponse)
    else:
        response = admin.call_node(node, request, DescribeConfigsResponse)
    result = checked_configs(response)[0]
    result.configs.sort(key=lambda config: config.name)
    return result


def _node_of(entity: _Entity, name: str) -> int | None:
    """Return the broker that describes its static configs, which other brokers lack; None for any broker."""
    if entity.kind is not KINDS["brokers"] or not name:
        return None
    if not name.isdigit():
        raise CommandFailed(f"The entity name for brokers must be a valid integer broker id, found: {name}")
    return int(name)


def _is_own(entity: _Entity, config: DescribeConfigsResourceResult) -> bool:
    """Whether the config is set on the entity itself."""
    return config.config_source == (DEFAULT_BROKER_SOURCE if entity.is_broker_default else entity.kind.source)


def _names(client: Client, entity: _Entity) -> list[str]:
    if entity.name is not None:
        return [entity.name]
    if entity.kind is KINDS["topics"]:
        return sorted(topic.name or "" for topic in client.metadata().topics)
    if entity.kind is KINDS["brokers"]:
        return [*(str(broker.node_id) for broker in client.metadata([]).brokers), ""]
    return _listed(client, entity.kind)


def _listed(client: Client, kind: _Kind) -> list[str]:
    """Return the groups or client-metrics subscriptions that have configs; for groups, all existing ones as well."""
    response = client.call(ListConfigResourcesRequest(resource_types=[kind.resource_type]), ListConfigResourcesResponse)
    raise_for(response.error_code, "config resources")
    names = {resource.resource_name for resource in response.config_resources}
    if kind is KINDS["groups"]:
        for broker in client.metadata([]).brokers:
            groups = client.node(broker.node_id).call(ListGroupsRequest(), ListGroupsResponse)
            raise_for(groups.error_code, "groups")
            names |= {group.group_id for group in groups.groups}
    return sorted(names)


def _print(entity: _Entity, show_all: bool, chosen: Sequence[DescribeConfigsResourceResult]) -> None:
    extent = "All" if show_all else "Dynamic"
    if entity.is_broker_default:
        click.echo("Default configs for brokers in the cluster are:")
    elif entity.kind is not KINDS["groups"] or chosen:
        click.echo(f"{extent} configs for {entity.kind.singular} {entity.name} are:")
    for config in chosen:
        synonyms = ", ".join(f"{SOURCES.get(s.source, s.source)}:{s.name}={s.value}" for s in config.synonyms)
        sensitive = str(config.is_sensitive).lower()
        click.echo(f"  {config.name}={printed_value(config.value)} sensitive={sensitive} synonyms={{{synonyms}}}")


def _document(
    kind: _Kind, result: DescribeConfigsResult, chosen: Sequence[DescribeConfigsResourceResult]
) -> dict[str, object]:
    return {
        "entityType": next(name for name, known in KINDS.items() if known is kind),
        "entityName": result.resource_name or None,
        "configs": [
            {
                "name": config.name,
                "value": config.value,
                "source": SOURCES.get(config.config_source, str(config.config_source)),
                "readOnly": config.read_only,
                "sensitive": config.is_sensitive,
                "synonyms": [
                    {"name": s.name, "value": s.value, "source": SOURCES.get(s.source, str(s.source))}
                    for s in config.synonyms
                ],
            }
            for config in chosen
        ],
    }
