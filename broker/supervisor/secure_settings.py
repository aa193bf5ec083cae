"""Settings of a local cluster with `--secure`, of its nodes and of its clients. Pure.

Clients connect to the listener CLIENT with TLS and SCRAM. Brokers and controllers prove who they are by certificates on
listeners of their own. Console and metrics are served by HTTPS, for the users in a file of credentials. The standard
authorizer lets in the nodes and the super user, and whoever they give rights to.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from broker.supervisor.layout import HOST, NodeLayout

ADMIN: Final = "admin"
MECHANISM: Final = "SCRAM-SHA-512"
SECURE_DIRECTORY: Final = "secure"
TRUST_FILE: Final = "ca.pem"
HTTP_CREDENTIALS_FILE: Final = "http.credentials"
INTERNAL_PORT_STEP: Final = 2
"""Distance of a node's inter-broker port from its client port."""
NODE_NAME: Final = "node-{}"
_PRINCIPALS_OF_NODES: Final = "RULE:^CN=(node-[0-9]+)$/$1/"
_SCRAM_LOGIN: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


def secure_node_settings(layout: NodeLayout, directory: Path) -> list[str]:
    """Return the settings, as KEY=VALUE, that make a node secure; they come after those of the layout.

    `directory` holds keys and certificates.
    """
    nodes = [NODE_NAME.format(number) for number in range(1, len(layout.controllers) + 1)]
    return [
        f"listeners=CLIENT://{HOST}:{layout.port},INTERNAL://{HOST}:{layout.port + INTERNAL_PORT_STEP},"
        f"CONTROLLER://{layout.controllers[layout.index]}",
        "listener.security.protocol.map=CLIENT:SASL_SSL,INTERNAL:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name=INTERNAL",
        f"sasl.enabled.mechanisms={MECHANISM}",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={key_file(directory, layout.index + 1)}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={directory / TRUST_FILE}",
        "listener.name.internal.ssl.client.auth=required",
        "listener.name.controller.ssl.client.auth=required",
        f"ssl.principal.mapping.rules={_PRINCIPALS_OF_NODES}",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        f"super.users={';'.join(f'User:{name}' for name in (ADMIN, *nodes))}",
        f"ottla.http.ssl.keystore.location={key_file(directory, layout.index + 1)}",
        f"ottla.http.credentials.location={directory / HTTP_CREDENTIALS_FILE}",
        "ottla.console.actions.enable=true",
    ]


def key_file(directory: Path, number: int) -> Path:
    """Return the file with the private key and certificate of the node `number`, from 1."""
    return directory / f"{NODE_NAME.format(number)}.pem"


def http_credentials(present: str, password: str) -> str:
    """Return the lines of the HTTP listener's credentials with the super user's password; other lines stay."""
    others = [line for line in present.splitlines() if line.partition(":")[0].strip() != ADMIN]
    return "".join(f"{line}\n" for line in (f"{ADMIN}:{password}", *others))


def client_settings(bootstrap: Sequence[str], directory: Path, password: str) -> dict[str, str]:
    """Return the super user's settings under Kafka's names."""
    return {
        "bootstrap.servers": ",".join(bootstrap),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{_SCRAM_LOGIN} required username="{ADMIN}" password="{password}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / TRUST_FILE),
    }


def librdkafka_settings(bootstrap: Sequence[str], directory: Path, password: str) -> dict[str, str]:
    """Return the super user's settings under librdkafka's names, which differ for keys and logins."""
    return {
        "bootstrap.servers": ",".join(bootstrap),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.username": ADMIN,
        "sasl.password": password,
        "ssl.ca.location": str(directory / TRUST_FILE),
    }


def node_client_settings(bootstrap: Sequence[str], directory: Path, number: int) -> dict[str, str]:
    """Return a node's settings as a client of the listener INTERNAL, which needs no password."""
    return {
        "bootstrap.servers": ",".join(bootstrap),
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key_file(directory, number)),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / TRUST_FILE),
    }
