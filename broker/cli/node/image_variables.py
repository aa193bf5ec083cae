"""Environment variables that mean more than one setting, as in other images, and the node id of a numbered host.

Pure functions from an environment to an environment; a callable reads the files that they name. Sources: the start
scripts of the apache/kafka image (KIP-975), and the variables that Testcontainers sets for Confluent's image.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from broker.cli.shared.failure import CommandFailed

NODE_ID: Final = "KAFKA_NODE_ID"
NODE_ID_BASE: Final = "OTTLA_NODE_ID_BASE"
"""A number. The node's id is this number plus the ordinal at the end of HOSTNAME, as in ``ottla-2``."""
HOSTNAME: Final = "HOSTNAME"
SECRETS: Final = "/etc/kafka/secrets"

_ORDINAL: Final = re.compile(r"-(\d+)$")
_ADVERTISED: Final = "KAFKA_ADVERTISED_LISTENERS"
_PASSWORDS: Final = (
    ("KAFKA_SSL_KEYSTORE_CREDENTIALS", "KAFKA_SSL_KEYSTORE_PASSWORD"),
    ("KAFKA_SSL_KEY_CREDENTIALS", "KAFKA_SSL_KEY_PASSWORD"),
    ("KAFKA_SSL_TRUSTSTORE_CREDENTIALS", "KAFKA_SSL_TRUSTSTORE_PASSWORD"),
)
_STORES: Final = (
    ("KAFKA_SSL_KEYSTORE_FILENAME", "KAFKA_SSL_KEYSTORE_LOCATION"),
    ("KAFKA_SSL_TRUSTSTORE_FILENAME", "KAFKA_SSL_TRUSTSTORE_LOCATION"),
)
_ZOOKEEPER: Final = "KAFKA_ZOOKEEPER_CONNECT"
_OWN_ZOOKEEPER: Final = re.compile(r"(localhost|127\.0\.0\.1)(:\d+)?(/.*)?$")
_CONTROLLER_PORT: Final = 29093
"""Bound to the loopback address of a container's own network, next to listeners on ports that users chose."""


def with_node_id_of_host(environ: Mapping[str, str]) -> dict[str, str]:
    """Set the node id from the host name's ordinal if OTTLA_NODE_ID_BASE is set.

    Raises CommandFailed for a base that is not a number, a host name without an ordinal, and a second node id.
    """
    environment = dict(environ)
    base = environment.pop(NODE_ID_BASE, "")
    if not base:
        return environment
    if not base.isdecimal():
        raise CommandFailed(f"{NODE_ID_BASE} is {base!r} but must be a whole number, not below 0.")
    if environment.get(NODE_ID):
        raise CommandFailed(f"{NODE_ID_BASE} and {NODE_ID} are both set; set one of them.")
    host = environment.get(HOSTNAME, "")
    found = _ORDINAL.search(host)
    if found is None:
        raise CommandFailed(
            f"{NODE_ID_BASE} is set, but the host name {host!r} does not end in -NUMBER as a StatefulSet's pods do; "
            f"set {NODE_ID} instead."
        )
    return environment | {NODE_ID: str(int(base) + int(found[1]))}


def with_secret_files(environ: Mapping[str, str], read: Callable[[str], str]) -> dict[str, str]:
    """Replace names of files in /etc/kafka/secrets by the stores' paths and the passwords in them.

    `read` returns a file's text, or raises OSError. Raises CommandFailed for a file that cannot be read.
    """
    environment = dict(environ)
    for variable, location in _STORES:
        if name := environment.pop(variable, ""):
            environment[location] = f"{SECRETS}/{name}"
    for variable, password in _PASSWORDS:
        if name := environment.pop(variable, ""):
            path = f"{SECRETS}/{name}"
            try:
                environment[password] = read(path).strip()
            except OSError as error:
                raise CommandFailed(f"{variable}: {path} cannot be read: {error.strerror}.") from error
    return environment


def without_own_zookeeper(environ: Mapping[str, str]) -> dict[str, str]:
    """Make a broker whose ZooKeeper would run in the same container a combined node with its own controller.

    Such a broker is the only one of its cluster. Testcontainers' Python module runs one unless `with_kraft` is called.
    """
    environment = dict(environ)
    if environment.get("KAFKA_PROCESS_ROLES") or not _OWN_ZOOKEEPER.match(environment.get(_ZOOKEEPER, "")):
        return environment
    del environment[_ZOOKEEPER]
    node_id = environment.get(NODE_ID) or environment.get("KAFKA_BROKER_ID") or "1"
    listeners = environment.get("KAFKA_LISTENERS") or environment.get(_ADVERTISED) or "PLAINTEXT://:9092"
    protocols = environment.get("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP") or "PLAINTEXT:PLAINTEXT,SSL:SSL"
    return environment | {
        NODE_ID: node_id,
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"{node_id}@localhost:{_CONTROLLER_PORT}",
        "KAFKA_LISTENERS": f"{listeners},CONTROLLER://localhost:{_CONTROLLER_PORT}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": f"{protocols},CONTROLLER:PLAINTEXT",
    }
