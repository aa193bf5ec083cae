"""TLS, SCRAM and ACLs of a chaos run (`--secure`).

Clients and followers log in with SCRAM-SHA-512 over TLS, and log in again after each session. Controllers accept
certificates (mTLS). The standard authorizer denies what no ACL allows. Nodes are super users; client programs have the
rights on their topics and their group alone. The run itself creates topics and observes over a listener of its own
without TLS.
"""

import secrets
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.support.certificates import CertificateAuthority

CLIENT_USER = "chaos"
NODE_USER = "node"
SESSION_MS = 10_000
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


class Security:
    """Keys, passwords and settings of a run. Files are written to `directory`."""

    def __init__(self, directory: Path, hosts: list[str]) -> None:
        directory.mkdir(parents=True)
        authority = CertificateAuthority()
        self._trust = directory / "authority.pem"
        self._trust.write_text(authority.pem)
        self._keys = authority.issue(NODE_USER, *hosts).write_pem(directory / "nodes.pem")
        self._hosts = directory / "hosts"
        self._hosts.write_text("127.0.0.1 localhost\n")
        self._passwords = {user: secrets.token_urlsafe(16) for user in (CLIENT_USER, NODE_USER)}

    @property
    def node_settings(self) -> Mapping[str, str]:
        """Return the settings of every node."""
        login = f'{_MODULE} required username="{NODE_USER}" password="{self._passwords[NODE_USER]}";'
        return {
            "listener.security.protocol.map": "CLIENT:SASL_SSL,CONTROLLER:SSL,RUN:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._keys),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._trust),
            "listener.name.controller.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.client.scram-sha-512.sasl.jaas.config": login,
            "connections.max.reauth.ms": str(SESSION_MS),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{NODE_USER};User:CN={NODE_USER};User:ANONYMOUS",
        }

    @property
    def format_arguments(self) -> list[str]:
        """Return the arguments of `storage format` that create the credentials."""
        users = self._passwords.items()
        return [
            part
            for user, password in users
            for part in ("--add-scram", f"SCRAM-SHA-512=[name={user},password={password}]")
        ]

    @property
    def client_environment(self) -> Mapping[str, str]:
        """Return the environment variables by which client programs log in."""
        return {
            "CHAOS_USER": CLIENT_USER,
            "CHAOS_PASSWORD": self._passwords[CLIENT_USER],
            "CHAOS_AUTHORITY": str(self._trust),
            # Java looks up the name of each server's address, which takes seconds where no name server answers.
            "JAVA_TOOL_OPTIONS": f"-Djdk.net.hosts.file={self._hosts}",
        }

    def grant(self, bootstrap: str) -> None:
        """Allow the client programs to write and read the topics of the run."""
        rights = [
            (ResourceType.TOPIC, AclOperation.WRITE),
            (ResourceType.TOPIC, AclOperation.READ),
            (ResourceType.GROUP, AclOperation.READ),
        ]
        pattern, allow = ResourcePatternType.PREFIXED, AclPermissionType.ALLOW
        bindings = [
            AclBinding(kind, "chaos", pattern, f"User:{CLIENT_USER}", "*", operation, allow)
            for kind, operation in rights
        ]
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        for done in admin.create_acls(bindings, request_timeout=60).values():
            done.result()
