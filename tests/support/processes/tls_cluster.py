"""Three combined nodes with TLS on every listener, and the certificates of their clients."""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from tests.support.certificates import CertificateAuthority, Identity
from tests.support.kafka.apache_kafka import free_ports, random_uuid_text
from tests.support.processes.broker_cluster import ClusterNode
from tests.support.processes.ottla_node import OttlaNode

NODES = 3
KEY_PASSWORD = "sesame-key-7"
STORE_PASSWORD = "sesame-store-9"
HOSTS = ("localhost", "127.0.0.1")


class TlsCluster:
    """A context manager that starts the nodes.

    Clients may show a certificate; nodes and controllers must. Names of users are the common names of certificates.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = CertificateAuthority()
        self.trust = self._write("authority.pem", self.authority.pem)
        self.alice = self.authority.issue("alice", organization="Acme")
        cluster_id = random_uuid_text()
        self.nodes = [ClusterNode(directory / f"node-{id_}", id_, cluster_id, {}) for id_ in range(1, NODES + 1)]
        voters = ",".join(f"{node.id}@127.0.0.1:{node.controller_port}" for node in self.nodes)
        for node in self.nodes:
            node.settings |= self._settings(node) | {"controller.quorum.voters": voters}

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    def key_file(self, name: str, identity: Identity, password: str | None = None) -> Path:
        """Write a PEM key store."""
        return self._write(name, identity.key_pem(password) + identity.chain_pem)

    def client_properties(self, identity: Identity | None = None) -> dict[str, str]:
        """Return the properties of Java's clients."""
        properties = {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
        }
        if identity is not None:
            store = self.directory / "client.p12"
            store.write_bytes(identity.pkcs12(STORE_PASSWORD))
            properties |= {
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": str(store),
                "ssl.keystore.password": STORE_PASSWORD,
            }
        return properties

    def librdkafka(self, identity: Identity | None = None) -> dict[str, str]:
        """Return the configuration of librdkafka's clients."""
        config = {"bootstrap.servers": self.bootstrap, "security.protocol": "SSL", "ssl.ca.location": str(self.trust)}
        if identity is not None:
            config |= {"ssl.certificate.pem": identity.chain_pem, "ssl.key.pem": identity.key_pem()}
        return config

    def _settings(self, node: ClusterNode) -> dict[str, str]:
        (inside,) = free_ports(1)
        identity = self.authority.issue(f"node-{node.id}", *HOSTS)
        own = self.key_file(f"node-{node.id}.pem", identity, KEY_PASSWORD)
        public = self.key_file(f"public-{node.id}.pem", self.authority.issue("public", *HOSTS))
        return {
            "process.roles": "broker,controller",
            "listeners": f"CLIENTS://127.0.0.1:{node.port},INSIDE://127.0.0.1:{inside},"
            f"CONTROLLER://127.0.0.1:{node.controller_port}",
            "listener.security.protocol.map": "CLIENTS:SSL,INSIDE:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "INSIDE",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(own),
            "ssl.key.password": KEY_PASSWORD,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust),
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/L,DEFAULT",
            "listener.name.clients.ssl.client.auth": "requested",
            "listener.name.clients.ssl.keystore.location": str(public),
            "ottla.ssl.reload.interval.ms": "50",
            "delegation.token.secret.key": "sesame-token-3",
        }

    def _write(self, name: str, text: str) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / name
        path.write_text(text)
        return path

    def __enter__(self) -> "TlsCluster":
        try:
            with ThreadPoolExecutor(NODES) as pool:
                list(pool.map(OttlaNode.start, self.nodes))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        with contextlib.ExitStack() as all_of_them:
            for node in self.nodes:
                if node.is_running:
                    all_of_them.callback(node.kill)
