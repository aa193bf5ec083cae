"""`ottla cluster --rotate-secrets`: another password and other certificates while the cluster runs.

The change of the password goes through the listener of the nodes, with the certificate of one of them, so that it can
be repeated after a failure at any point, and also replaces a lost password.
"""

import datetime

from broker.cli.node.secure_cluster import NODE_CLIENT_FILE, SecureDirectory, new_password
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.scram_credentials import upsertion
from broker.cli.shared.session import read_properties, session
from broker.supervisor.secure_settings import ADMIN, MECHANISM
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)


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
    renewed = directory.renew_certificates(now)
    if with_authority:
        directory.renew_authority(now)
    return renewed


def change_password(directory: SecureDirectory, password: str) -> None:
    """Give the super user a password, in the name of a node. Raises CommandFailed or OSError."""
    node_client = str(directory.path / NODE_CLIENT_FILE)
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion(ADMIN, MECHANISM, password)])
    with session(read_properties(node_client)["bootstrap.servers"], node_client) as client:
        response = client.call(request, AlterUserScramCredentialsResponse)
        for result in response.results:
            if result.error_code:
                raise KafkaError(ErrorCode(result.error_code), result.error_message or "")
