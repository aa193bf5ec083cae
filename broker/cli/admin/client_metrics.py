"""`ottla client-metrics`: Kafka's kafka-client-metrics, the subscriptions to metrics of clients (KIP-714, KIP-1000)."""

from collections.abc import Callable, Mapping
from functools import partial

import click

from broker.cli.shared.cluster_view import describe_configs
from broker.cli.shared.options import client_options, forbid, json_option, one_action
from broker.cli.shared.output import print_json
from broker.cli.shared.session import session
from broker.client import Client, raise_for
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from protocol.primitives import uuid_to_text
from storage.directories.formatting import random_id

CLIENT_METRICS = 16
"""Resource type of subscriptions."""

SET, DELETE = 0, 1
INTERVAL, MATCH, METRICS = "interval.ms", "match", "metrics"


@click.command("client-metrics", short_help="Describe or alter subscriptions to metrics of clients.")
@click.option("--list", "list_", is_flag=True, help="List the subscriptions.")
@click.option("--describe", is_flag=True, help="Show the configs of one subscription, or of all.")
@click.option("--alter", is_flag=True, help="Create a subscription or change its configs.")
@click.option("--delete", is_flag=True, help="Delete a subscription.")
@click.option("--name", metavar="NAME", help="The subscription.")
@click.option("--generate-name", is_flag=True, help="With --alter: use a random UUID as name.")
@click.option("--metrics", metavar="PREFIX,…", help="With --alter: prefixes of metric names; * for all, '' to reset.")
@click.option("--interval", metavar="MS", help="With --alter: time between two pushes in ms; '' to reset.")
@click.option(
    "--match",
    metavar="K=V,…",
    help="With --alter: clients to ask, by client_id, client_instance_id, client_software_name,"
    " client_software_version, client_source_address or client_source_port; '' to reset.",
)
@client_options
@json_option
def client_metrics(
    list_: bool,
    describe: bool,
    alter: bool,
    delete: bool,
    name: str | None,
    generate_name: bool,
    metrics: str | None,
    interval: str | None,
    match: str | None,
    bootstrap_server: str,
    command_config: str | None,
    as_json: bool,
) -> None:
    """Describe or alter subscriptions to metrics of clients (kafka-client-metrics)."""
    action = one_action({"alter": alter, "delete": delete, "describe": describe, "list": list_})
    changes = {METRICS: metrics, INTERVAL: interval, MATCH: match}
    if action != "alter":
        forbid({"generate-name": generate_name}, "--alter")
        for option, value in {"metrics": metrics, "interval": interval, "match": match}.items():
            forbid({option: value is not None}, "--alter")
    work: Callable[[Client], None]
    match action:
        case "list":
            forbid({"name": name}, "--alter, --delete or --describe")
            work = partial(_list, as_json=as_json)
        case "describe":
            work = partial(_describe, name=name, as_json=as_json)
        case "alter":
            _check_interval(interval)
            work = partial(_alter, name=_name_to_alter(name, generate_name), changes=changes)
        case _:
            if name is None:
                raise click.UsageError("--delete needs --name.")
            work = partial(_delete, name=name)
    with session(bootstrap_server, command_config) as client:
        client.retrying(lambda: work(client))


def _name_to_alter(name: str | None, generate_name: bool) -> str:
    if (name is not None) == generate_name:
        raise click.UsageError("--alter needs exactly one of --name and --generate-name.")
    return uuid_to_text(random_id()) if name is None else name


def _check_interval(text: str | None) -> None:
    if text and not text.lstrip("-").isdigit():
        raise click.UsageError(f"--interval {text}: use a whole number of ms, or '' to reset.")


def _names(client: Client) -> list[str]:
    response = client.call(ListConfigResourcesRequest(resource_types=[CLIENT_METRICS]), ListConfigResourcesResponse)
    raise_for(response.error_code, "client metrics subscriptions")
    return sorted(resource.resource_name for resource in response.config_resources)


def _list(client: Client, as_json: bool) -> None:
    names = _names(client)
    if as_json:
        print_json(names)
        return
    click.echo("\n".join(names))


def _configs(client: Client, name: str) -> dict[str, str]:
    (result,) = describe_configs(client, [(CLIENT_METRICS, name)], synonyms=False)
    return {config.name: config.value or "" for config in sorted(result.configs, key=lambda config: config.name)}


def _describe(client: Client, name: str | None, as_json: bool) -> None:
    names = _names(client)
    if name is not None and name not in names and not as_json:
        click.echo(f"The client metric resource {name} doesn't exist and doesn't have dynamic config.")
        return
    described = {each: _configs(client, each) for each in ([name] if name is not None else names) if each in names}
    if as_json:
        print_json(described)
        return
    for each, configs in described.items():
        click.echo(f"Client metrics configs for {each} are:")
        for key, value in configs.items():
            click.echo(f"  {key}={value}")


def _alter(client: Client, name: str, changes: Mapping[str, str | None]) -> None:
    """Set the configs that have a value, and reset those with an empty one."""
    _send(client, name, {key: value or None for key, value in changes.items() if value is not None})
    click.echo(f"Altered client metrics config for {name}.")


def _delete(client: Client, name: str) -> None:
    """Reset all configs of the subscription, which deletes it."""
    _send(client, name, dict.fromkeys(_configs(client, name)))
    click.echo(f"Deleted client metrics config for {name}.")


def _send(client: Client, name: str, values: Mapping[str, str | None]) -> None:
    configs = [AlterableConfig(key, DELETE if value is None else SET, value) for key, value in values.items()]
    request = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(CLIENT_METRICS, name, configs)])
    for result in client.call(request, IncrementalAlterConfigsResponse).responses:
        raise_for(result.error_code, f"client metrics subscription {name!r}", result.error_message)
