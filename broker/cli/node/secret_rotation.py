"""`ottla cluster --rotate-secrets`: another password and other certificates while the cluster runs.

The change of the password goes through the listener of the nodes, with the certificate of one of them, so that it can
be repeated after a failure at any point, and also replaces a lost password.
"""

import datetime
import socket
import time
from collections.abc import Callable, Mapping
from typing import Final

from broker.cli.node.secure_cluster import NODE_CLIENT_FILE, SecureDirectory, new_password
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.scram_credentials import upsertion
from broker.cli.shared.session import read_properties, session
from broker.client_config import ClientConfig
from broker.config.errors import ConfigError
from broker.supervisor.secure_settings import ADMIN, MECHANISM
from broker.tls.blocking_socket import secure
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)

RELOAD_PATIENCE_S: Final = 30.0
"""Longer than the default of `ottla.ssl.reload.interval.ms`."""
_POLL_S: Final = 0.2
_CONNECT_S: Final = 5.0


def rotate_secrets(directory: SecureDirectory, now: datetime.datetime, *, with_authority: bool = False) -> list[str]:
    """Replace the super user's password, then the certificates of the nodes. Return the names of the nodes.

    A new authority is trusted at once and signs from the next rotation on, when all nodes trust it. The rotation after
    that one drops the former authority. Raises CommandFailed or OSError.
    """
    if not directory.is_complete():
        raise CommandFailed(f"{directory.path} is not of a cluster that was started with --secure.")
    password = new_password()
    change_password(directory, password)
    directory.set_password(password)
    directory.drop_former_authorities(now)
    return directory.renew_authority(now) if with_authority else directory.renew_certificates(now)


def await_reload(
    directory: SecureDirectory, patience_s: float = RELOAD_PATIENCE_S, sleep: Callable[[float], object] = time.sleep
) -> list[str]:
    """Wait until all nodes that listen serve their present certificates; return the addresses of those that do not.

    A further rotation before that could use a certificate that some node does not trust yet. Raises CommandFailed.
    """
    node_client = read_properties(str(directory.path / NODE_CLIENT_FILE))
    current, waiting = directory.certificates(), node_client["bootstrap.servers"].split(",")
    deadline = time.monotonic() + patience_s
    while True:
        waiting = [address for address in waiting if _served(address, node_client) not in (None, *current)]
        if not waiting or time.monotonic() >= deadline:
            return waiting
        sleep(_POLL_S)


def _served(address: str, properties: Mapping[str, str]) -> bytes | None:
    """Return the certificate that a node shows, as DER; None if nothing listens. Raises CommandFailed."""
    config = ClientConfig.parse(address, properties)
    try:
        with secure(
            socket.create_connection(config.bootstrap[0], _CONNECT_S), config.bootstrap[0].host, config.tls
        ) as found:
            return found.getpeercert(binary_form=True) or b""
    except ConfigError as error:
        raise CommandFailed(error.sentence) from error
    except ConnectionRefusedError:
        return None
    except OSError:
        return b""


def change_password(directory: SecureDirectory, password: str) -> None:
    """Give the super user a password, in the name of a node. Raises CommandFailed or OSError."""
    node_client = str(directory.path / NODE_CLIENT_FILE)
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion(ADMIN, MECHANISM, password)])
    with session(read_properties(node_client)["bootstrap.servers"], node_client) as client:
        response = client.call(request, AlterUserScramCredentialsResponse)
        for result in response.results:
            if result.error_code:
                raise KafkaError(ErrorCode(result.error_code), result.error_message or "")
