"""`ottla broker-api-versions`: Kafka's kafka-broker-api-versions."""

import click

from broker.cli.shared.options import client_options, json_option
from broker.cli.shared.output import print_json
from broker.cli.shared.session import session
from broker.client import Client, Connection
from protocol.api_keys import API_BY_KEY, FIRST_PRIVATE_KEY
from protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse


@click.command("broker-api-versions", short_help="Show which APIs each broker serves.")
@client_options
@json_option
def broker_api_versions(bootstrap_server: str, command_config: str | None, as_json: bool) -> None:
    """Show the APIs of each broker, and the versions that this program would use (kafka-broker-api-versions)."""
    with session(bootstrap_server, command_config) as client:
        client.retrying(lambda: _show(client, as_json))


def _show(client: Client, as_json: bool) -> None:
    brokers = [(broker, client.node(broker.broker_id)) for broker in _live_brokers(client)]
    if as_json:
        print_json([_document(broker, connection) for broker, connection in brokers])
        return
    for broker, connection in brokers:
        rack = "null" if broker.rack is None else broker.rack
        fenced = str(broker.is_fenced).lower()
        click.echo(
            f"{broker.host}:{broker.port} (id: {broker.broker_id} rack: {rack} isFenced: {fenced}) -> (\n"
            + ",\n".join(f"\t{line}" for line in _lines(connection))
            + "\n)"
        )


def _live_brokers(client: Client) -> list[DescribeClusterBroker]:
    if client.any().serves(DescribeClusterRequest.API_KEY):
        found = client.call(DescribeClusterRequest(), DescribeClusterResponse).brokers
    else:
        found = [DescribeClusterBroker(b.node_id, b.host, b.port, b.rack) for b in client.metadata([]).brokers]
    client.metadata([])
    return sorted(found, key=lambda broker: broker.broker_id)


def _lines(connection: Connection) -> list[str]:
    """Return one line per API of either side: the broker's versions and the one this program would use."""
    lines = []
    for key in sorted(API_BY_KEY.keys() | connection.versions.keys()):
        known = API_BY_KEY.get(key)
        if known is not None and key not in connection.versions and not _is_public(key):
            continue
        name = known.name if known else "UNKNOWN"
        if key not in connection.versions:
            lines.append(f"{name}({key}): UNSUPPORTED")
            continue
        low, high = connection.versions[key]
        versions = str(low) if low == high else f"{low} to {high}"
        usable = _usable(connection, key)
        lines.append(f"{name}({key}): {versions} [{'unusable' if usable is None else f'usable: {usable}'}]")
    return lines


def _is_public(key: int) -> bool:
    """Whether brokers serve the API to clients."""
    return key < FIRST_PRIVATE_KEY and "broker" in API_BY_KEY[key].listeners


def _usable(connection: Connection, key: int) -> int | None:
    known = API_BY_KEY.get(key)
    low, high = connection.versions[key]
    if known is None or known.max_version < low or high < known.min_version:
        return None
    return min(known.max_version, high)


def _document(broker: DescribeClusterBroker, connection: Connection) -> dict[str, object]:
    features = connection.api_versions
    return {
        "id": broker.broker_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "fenced": broker.is_fenced,
        "apis": [
            {
                "key": key,
                "name": API_BY_KEY[key].name if key in API_BY_KEY else None,
                "minVersion": low,
                "maxVersion": high,
                "usable": _usable(connection, key),
            }
            for key, (low, high) in sorted(connection.versions.items())
        ],
        "supportedFeatures": {f.name: [f.min_version, f.max_version] for f in features.supported_features},
        "finalizedFeatures": {f.name: f.max_version_level for f in features.finalized_features},
    }
