"""`ottla configs`: Kafka's kafka-configs, for topics, brokers, groups and client-metrics subscriptions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click

from broker.cli.shared.cluster_view import describe_configs
from broker.cli.shared.config_text import parse_additions, printed_value
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import client_options, forbid, json_option, one_action
from broker.cli.shared.output import print_json
from broker.cli.shared.session import read_properties, session
from broker.client import Client, raise_for
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsResult
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


@dataclass(frozen=True, slots=True)
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
UNSUPPORTED_TYPES = {
    "users": "SCRAM credentials and user quotas",
    "clients": "client quotas",
    "ips": "connection quotas",
    "broker-loggers": "log levels",
}


@dataclass(frozen=True, slots=True)
class _Entity:
    """The entities that the options select. `name` None: all of the type; empty: the default of all brokers."""

    kind: _Kind
    name: str | None

    @property
    def is_broker_default(self) -> bool:
        return self.kind is KINDS["brokers"] and self.name == ""


@click.command("configs", short_help="Describe or alter configurations.")
@click.option("--describe", is_flag=True, help="Show the configs of an entity.")
@click.option("--alter", is_flag=True, help="Set or remove configs of an entity.")
@click.option("--all", "all_", is_flag=True, help="With --describe: show defaults and static configs too.")
@click.option("--add-config", metavar="K=V[,…]", help="Configs to set; commas inside a value go into [brackets].")
@click.option("--add-config-file", metavar="FILE", type=click.Path(), help="Configs to set, as properties.")
@click.option("--delete-config", metavar="K[,…]", help="Configs to remove.")
@click.option("--entity-type", type=click.Choice([*KINDS, *UNSUPPORTED_TYPES]), help="Type of the entity.")
@click.option("--entity-name", metavar="NAME", help="Topic, broker id, group or client-metrics subscription.")
@click.option("--entity-default", is_flag=True, help="Select the default of all brokers.")
@click.option("--topic", metavar="TOPIC", help="Short for --entity-type topics --entity-name TOPIC.")
@click.option("--broker", metavar="ID", help="Short for --entity-type brokers --entity-name ID.")
@click.option("--broker-defaults", is_flag=True, help="Short for --entity-type brokers --entity-default.")
@click.option("--group", metavar="GROUP", help="Short for --entity-type groups --entity-name GROUP.")
@click.option("--client-metrics", metavar="NAME", help="Short for --entity-type client-metrics --entity-name NAME.")
@client_options
@json_option
def configs(
    describe: bool,
    alter: bool,
    all_: bool,
    add_config: str | None,
    add_config_file: str | None,
    delete_config: str | None,
    entity_type: str | None,
    entity_name: str | None,
    entity_default: bool,
    topic: str | None,
    broker: str | None,
    broker_defaults: bool,
    group: str | None,
    client_metrics: str | None,
    bootstrap_server: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Describe or alter configurations (kafka-configs)."""
    action = one_action({"describe": describe, "alter": alter})
    shorts = {"topics": topic, "brokers": broker, "groups": group, "client-metrics": client_metrics}
    entity = _entity(entity_type, "" if entity_default else entity_name, shorts, broker_defaults)
    if action == "describe":
        forbid(
            {"add-config": add_config, "add-config-file": add_config_file, "delete-config": delete_config}, "--alter"
        )
    work = (
        (lambda client: _describe(client, entity, all_, as_json))
        if action == "describe"
        else _altering(entity, add_config, add_config_file, delete_config)
    )
    with session(bootstrap_server, command_config) as client:
        client.retrying(lambda: work(client))


def _entity(kind: str | None, name: str | None, shorts: dict[str, str | None], broker_defaults: bool) -> _Entity:
    """Return the entity that the options name. Raises UsageError, or CommandFailed for unsupported types."""
    given = [(short, value) for short, value in shorts.items() if value is not None]
    if broker_defaults:
        given.append(("brokers", ""))
    if kind is not None:
        if kind in UNSUPPORTED_TYPES:
            raise CommandFailed(f"--entity-type {kind}: {UNSUPPORTED_TYPES[kind]} are not implemented in this version.")
        return _Entity(KINDS[kind], name)
    if len(given) > 1:
        raise click.UsageError("Only one entity can be named.")
    if not given:
        raise click.UsageError("At least one entity type must be specified")
    return _Entity(KINDS[given[0][0]], given[0][1])


def _altering(
    entity: _Entity, add_config: str | None, add_config_file: str | None, delete_config: str | None
) -> Callable[[Client], None]:
    if entity.name is None:
        raise click.UsageError(f"An entity name must be specified with --alter of {entity.kind.singular}s")
    if add_config is None and add_config_file is None and delete_config is None:
        raise click.UsageError("At least one of --add-config, --add-config-file or --delete-config is needed.")
    if add_config is not None and add_config_file is not None:
        raise click.UsageError("Only one of --add-config and --add-config-file can be given.")
    try:
        additions = read_properties(add_config_file) if add_config is None else parse_additions(add_config)
    except ValueError as error:
        raise click.UsageError(f"--add-config: {error}") from error
    deletions = [key.strip() for key in (delete_config or "").split(",") if key.strip()]
    name = entity.name
    return lambda client: _alter(client, entity, name, additions, deletions)


def _alter(client: Client, entity: _Entity, name: str, additions: dict[str, str], deletions: Sequence[str]) -> None:
    current = _described(client, entity, name)
    missing = sorted(set(deletions) - {config.name for config in current.configs if _is_own(entity, config)})
    if missing:
        raise CommandFailed(f"Invalid config(s): {','.join(missing)}")
    changes = [AlterableConfig(key, SET, value) for key, value in additions.items()]
    changes += [AlterableConfig(key, DELETE, None) for key in deletions]
    request = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(entity.kind.resource_type, name, changes)])
    connection = client.any() if _node_of(entity, name) is None else client.node(int(name))
    for result in connection.call(request, IncrementalAlterConfigsResponse).responses:
        raise_for(result.error_code, f"{entity.kind.singular} {name}", result.error_message)
    if entity.is_broker_default:
        click.echo("Completed updating default config for brokers in the cluster.")
    else:
        click.echo(f"Completed updating config for {entity.kind.singular} {name}.")


def _describe(client: Client, entity: _Entity, show_all: bool, as_json: bool) -> None:
    described = []
    for name in _names(client, entity):
        try:
            described.append(_described(client, _Entity(entity.kind, name), name))
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise CommandFailed(f"The topic '{name}' doesn't exist and doesn't have dynamic config.") from error
    chosen = [
        (result, [c for c in result.configs if show_all or _is_own(_Entity(entity.kind, result.resource_name), c)])
        for result in described
    ]
    if as_json:
        print_json([_document(entity.kind, result, configs) for result, configs in chosen])
        return
    for result, configs in chosen:
        _print(_Entity(entity.kind, result.resource_name), show_all, configs)


def _described(client: Client, entity: _Entity, name: str) -> DescribeConfigsResult:
    result = describe_configs(client, [(entity.kind.resource_type, name)], node=_node_of(entity, name))[0]
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
