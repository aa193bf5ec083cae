"""`ottla cluster cluster-id|unregister|list-endpoints`: Kafka's kafka-cluster."""

from collections.abc import Callable
from functools import wraps

import click

from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import DEFAULT_BOOTSTRAP, json_option
from broker.cli.shared.output import print_columns, print_json, width_of
from broker.cli.shared.target import Target
from broker.client import UnsupportedVersion, raise_for
from protocol.messages.describe_cluster import DescribeClusterBroker
from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

_NARROW = 10
_HEADINGS = ("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")


def _target_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the connection, after the action as in Kafka's tool, and pass them as `target`."""

    @wraps(command)
    def with_target(server: str | None, controller: str | None, command_config: str | None, **rest: object) -> None:
        command(target=Target.of(server, controller, command_config), **rest)

    for option in (
        click.option(
            "--command-config", "--config", "-c", metavar="FILE", type=click.Path(), help="Client properties."
        ),
        click.option("--bootstrap-controller", "-C", "controller", metavar="HOST:PORT[,…]", help="Controllers to ask."),
        click.option(
            "--bootstrap-server",
            "-b",
            "server",
            metavar="HOST:PORT[,…]",
            help=f"Brokers to ask. [default: {DEFAULT_BOOTSTRAP}]",
        ),
    ):
        option(with_target)
    return with_target


@click.command("cluster-id", short_help="Print the cluster's id.")
@_target_options
@json_option
def cluster_id(target: Target, as_json: bool) -> None:
    """Print the id of a running cluster."""
    with target.open() as admin:
        found = admin.retrying(admin.cluster_id)
    if as_json:
        print_json({"clusterId": found})
    else:
        click.echo(f"Cluster ID: {found}")


@click.command("unregister", short_help="Remove a broker that never comes back.")
@_target_options
@click.option("--id", "-i", "broker_id", required=True, type=int, metavar="ID", help="The broker's id.")
def unregister(target: Target, broker_id: int) -> None:
    """Remove the registration of a broker that is gone for good; a running broker registers again."""
    with target.open() as admin:
        try:
            response = admin.retrying(
                lambda: admin.call(UnregisterBrokerRequest(broker_id=broker_id), UnregisterBrokerResponse)
            )
        except UnsupportedVersion as error:
            raise CommandFailed(f"the cluster cannot unregister brokers: {error}") from error
        raise_for(response.error_code, f"broker {broker_id}", response.error_message)
    click.echo(f"Broker {broker_id} is no longer registered.")


@click.command("list-endpoints", short_help="List brokers or controllers with their endpoints.")
@_target_options
@click.option("--include-fenced-brokers", is_flag=True, help="Include brokers that are fenced.")
@json_option
def list_endpoints(target: Target, include_fenced_brokers: bool, as_json: bool) -> None:
    """List the endpoints of brokers, or of controllers with --bootstrap-controller."""
    if include_fenced_brokers and target.is_controller:
        raise click.UsageError("--include-fenced-brokers needs --bootstrap-server: controllers do not list brokers.")
    with target.open() as admin:
        nodes = admin.retrying(lambda: admin.endpoints(include_fenced=include_fenced_brokers))
    nodes.sort(key=lambda node: node.broker_id)
    if as_json:
        print_json([_document(node, target.is_controller) for node in nodes])
    else:
        _print(nodes, target.is_controller)


def _print(nodes: list[DescribeClusterBroker], is_controller: bool) -> None:
    """Print Kafka's columns; controllers have no state."""
    rows = [
        (
            node.broker_id,
            node.host,
            node.port,
            "null" if node.rack is None else node.rack,
            _state(node),
            _kind(is_controller),
        )
        for node in nodes
    ]
    widths = [
        _NARROW,
        width_of((row[1] for row in rows), len("HOST")),
        _NARROW,
        width_of((row[3] for row in rows), _NARROW),
    ]
    formats = [f"{{:<{width}}}" for width in (*widths, _NARROW, 15)]
    shown = [index for index in range(len(_HEADINGS)) if not (is_controller and _HEADINGS[index] == "STATE")]
    print_columns(
        [_HEADINGS[index] for index in shown],
        [[row[index] for index in shown] for row in rows],
        [formats[index] for index in shown],
    )


def _state(node: DescribeClusterBroker) -> str:
    return "fenced" if node.is_fenced else "unfenced"


def _kind(is_controller: bool) -> str:
    return "controller" if is_controller else "broker"


def _document(node: DescribeClusterBroker, is_controller: bool) -> dict[str, object]:
    document: dict[str, object] = {"id": node.broker_id, "host": node.host, "port": node.port, "rack": node.rack}
    if not is_controller:
        document["state"] = _state(node)
    return document | {"endpointType": _kind(is_controller)}


@click.group("kafka-cluster", short_help="Query a running cluster.")
def kafka_cluster() -> None:
    """Query a running cluster (kafka-cluster). Starts no local cluster, unlike `ottla cluster` without an action."""


for _query in (cluster_id, unregister, list_endpoints):
    kafka_cluster.add_command(_query)
