"""Commands of the compose file's profile `secure`, which run once: `make` and `register`.

`make` writes the authority, certificates and passwords into a volume that the nodes read. `register` gives the super
user its password, once the nodes run. Both may run again.
"""

import datetime
import sys
from pathlib import Path
from typing import Final

import click

from broker.cli.node.secret_rotation import change_password
from broker.cli.node.secure_cluster import SecureDirectory, SecureNode
from broker.cli.shared.failure import CommandFailed
from protocol.errors import KafkaError

SECRETS: Final = Path("/etc/kafka/secrets")
_LOCAL_HOSTS: Final = ("localhost", "127.0.0.1")
_DIRECTORY = click.option(
    "--directory", type=click.Path(path_type=Path), default=SECRETS, help="Directory of the secrets."
)


@click.group()
def secure_container() -> None:
    """Prepare secure nodes in containers."""


@secure_container.command()
@_DIRECTORY
@click.option("--host", "hosts", multiple=True, required=True, help="Host name of a node, in the order of node ids.")
@click.option("--client", "clients", multiple=True, required=True, help="HOST:PORT of the same node for clients.")
@click.option("--internal", multiple=True, required=True, help="HOST:PORT of the same node for other nodes.")
def make(directory: Path, hosts: tuple[str, ...], clients: tuple[str, ...], internal: tuple[str, ...]) -> None:
    """Make what is missing in the directory."""
    if not len(hosts) == len(clients) == len(internal):
        raise CommandFailed("--host, --client and --internal must be given once for each node.")
    nodes = [
        SecureNode((host, *_LOCAL_HOSTS), (client,), (other,))
        for host, client, other in zip(hosts, clients, internal, strict=True)
    ]
    SecureDirectory(directory).prepare_for(nodes, datetime.datetime.now(datetime.UTC))


@secure_container.command()
@_DIRECTORY
def register(directory: Path) -> None:
    """Give the super user the password of the directory."""
    secrets = SecureDirectory(directory)
    try:
        change_password(secrets, secrets.password)
    except (OSError, KafkaError) as error:
        raise CommandFailed(f"the super user has no password yet: {error}.") from error


if __name__ == "__main__":
    sys.exit(secure_container())
