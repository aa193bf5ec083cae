"""The directory `secure` of a cluster: an authority, certificates of nodes, the super user's password, client settings.

The super user has the same password for the HTTP listeners. Lines of other users in their credentials file are kept.

The directory has mode 700 and its files mode 600. Each file is made if it is missing, so that an interrupted first
start continues. Settings of clients are written at each start, because ports may change.
"""

import datetime
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography import x509

from broker.cli.node.private_file import make_private_directory, properties_text, write_private
from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.session import read_properties
from broker.config.broker_config import BrokerConfig
from broker.config.listeners import ConfiguredListener
from broker.supervisor.layout import HOST
from broker.supervisor.secure_settings import (
    ADMIN,
    HTTP_CREDENTIALS_FILE,
    MECHANISM,
    NODE_NAME,
    TRUST_FILE,
    client_settings,
    http_credentials,
    key_file,
    librdkafka_settings,
    node_client_settings,
)
from broker.tls.authority import IssuedCertificate, PrivateAuthority, certificate_pem, key_id
from protocol.lazy_dataclass import lazy_dataclass

AUTHORITY_KEY_FILE: Final = "ca-key.pem"
PASSWORD_FILE: Final = "admin.password"
CLIENT_FILE: Final = "client.properties"
LIBRDKAFKA_FILE: Final = "librdkafka.properties"
NODE_CLIENT_FILE: Final = "node-client.properties"
PASSWORD_BYTES: Final = 24
_AUTHORITY: Final = "Ottla cluster authority"
_LOCAL_HOSTS: Final = (HOST, "localhost")


def new_password() -> str:
    """Return a random password of letters, digits, - and _, which no format of settings has to escape."""
    return secrets.token_urlsafe(PASSWORD_BYTES)


@lazy_dataclass(frozen=True, slots=True)
class SecureNode:
    """A node of a secure cluster: the names in its certificate, and HOST:PORT for clients and for other nodes."""

    hosts: Sequence[str]
    client_addresses: Sequence[str]
    internal_addresses: Sequence[str]


@lazy_dataclass(frozen=True, slots=True)
class SecureDirectory:
    """The files below `path`. Methods block and raise CommandFailed or OSError."""

    path: Path

    @property
    def client_file(self) -> Path:
        """The super user's settings under Kafka's names."""
        return self.path / CLIENT_FILE

    @property
    def password_file(self) -> Path:
        """The super user's password, for clients and for the console."""
        return self.path / PASSWORD_FILE

    def is_complete(self) -> bool:
        """Whether the cluster has been made: the password is the last file that its nodes depend on."""
        return self.password_file.exists()

    def prepare(self, nodes: Sequence[BrokerConfig], now: datetime.datetime) -> str:
        """Make what is missing for nodes with these settings; see `prepare_for`."""
        return self.prepare_for(
            [SecureNode(_hosts(each), _client_addresses(each), _internal_addresses(each)) for each in nodes], now
        )

    def prepare_for(self, nodes: Sequence[SecureNode], now: datetime.datetime) -> str:
        """Make what is missing and return the `--add-scram` text of the super user."""
        make_private_directory(self.path)
        authority = self._authority(now)
        for number, node in enumerate(nodes, start=1):
            self._keep_certificate(authority, number, node.hosts, now)
        if not self.password_file.exists():
            write_private(self.password_file, f"{new_password()}\n")
        self._write_clients(
            [address for node in nodes for address in node.client_addresses],
            [address for node in nodes for address in node.internal_addresses],
        )
        return f"{MECHANISM}=[name={ADMIN},password={self.password}]"

    @property
    def password(self) -> str:
        """The super user's password."""
        return self.password_file.read_text().strip()

    def set_password(self, password: str) -> None:
        """Write another password of the super user, and the settings of clients with it."""
        clients, internal = (
            read_properties(str(self.path / name))["bootstrap.servers"].split(",")
            for name in (CLIENT_FILE, NODE_CLIENT_FILE)
        )
        write_private(self.password_file, f"{password}\n")
        self._write_clients(clients, internal)

    def renew_certificates(self, now: datetime.datetime) -> list[str]:
        """Issue all certificates of nodes again, with new keys; return their names. Nodes load changed files."""
        authority = self._authority(now)
        renewed = []
        for file in self._certificate_files():
            former = _parse(file)
            write_private(file, authority.issue(former.name, sorted(former.hosts), now))
            renewed.append(former.name)
        return renewed

    def renew_authority(self, now: datetime.datetime) -> list[str]:
        """Trust a new authority beside the present one, renew the certificates, and sign with the new key from now on.

        A node that has loaded its certificate trusts the new authority, too. After a crash in between, the key is still
        the former one: it signs, and the new certificate is dropped later. Return the names of the nodes.
        """
        authority, trust = PrivateAuthority.create(_AUTHORITY, now), self.path / TRUST_FILE
        write_private(trust, authority.certificate_pem + trust.read_text())
        renewed = self.renew_certificates(now)
        write_private(self.path / AUTHORITY_KEY_FILE, authority.key_pem)
        return renewed

    def certificates(self) -> list[bytes]:
        """Return the certificates of the nodes as DER."""
        return [_parse(file).der for file in self._certificate_files()]

    def drop_former_authorities(self, now: datetime.datetime) -> None:
        """End the trust in authorities that have issued no present certificate of a node and do not sign now."""
        trust = self.path / TRUST_FILE
        needed = {self._authority(now).key_id} | {_parse(file).issuer_key_id for file in self._certificate_files()}
        found = x509.load_pem_x509_certificates(trust.read_bytes())
        kept = [certificate for certificate in found if key_id(certificate) in needed]
        if len(kept) < len(found):
            write_private(trust, "".join(map(certificate_pem, kept)))

    def _certificate_files(self) -> list[Path]:
        return sorted(self.path.glob(f"{NODE_NAME.format('*')}.pem"))

    def _write_clients(self, clients: Sequence[str], internal: Sequence[str]) -> None:
        password = self.password
        for name, settings in (
            (CLIENT_FILE, client_settings(clients, self.path, password)),
            (LIBRDKAFKA_FILE, librdkafka_settings(clients, self.path, password)),
            (NODE_CLIENT_FILE, node_client_settings(internal, self.path, 1)),
        ):
            write_private(self.path / name, properties_text(settings))
        self._write_http_credentials(password)

    def _write_http_credentials(self, password: str) -> None:
        """Write the HTTP credentials if the super user's password has changed: nodes load changed ones."""
        file = self.path / HTTP_CREDENTIALS_FILE
        present = file.read_text() if file.exists() else ""
        wanted = http_credentials(present, password)
        if wanted != present:
            write_private(file, wanted)

    def _authority(self, now: datetime.datetime) -> PrivateAuthority:
        trust, key = self.path / TRUST_FILE, self.path / AUTHORITY_KEY_FILE
        if not trust.exists():
            authority = PrivateAuthority.create(_AUTHORITY, now)
            write_private(key, authority.key_pem)
            write_private(trust, authority.certificate_pem)
            return authority
        try:
            return PrivateAuthority.from_pem(trust.read_text(), key.read_text())
        except (ValueError, TypeError):
            raise CommandFailed(f"{trust} and {key} are not the certificate and the key of an authority.") from None

    def _keep_certificate(
        self, authority: PrivateAuthority, number: int, hosts: Sequence[str], now: datetime.datetime
    ) -> None:
        """Issue a node's certificate if it is missing, about to end, or not for all of its hosts."""
        file = key_file(self.path, number)
        if not file.exists() or not _parse(file).serves(hosts, now):
            write_private(file, authority.issue(NODE_NAME.format(number), hosts, now))


def _parse(file: Path) -> IssuedCertificate:
    try:
        return IssuedCertificate.from_pem(file.read_text())
    except ValueError as error:
        raise CommandFailed(f"{file} has no certificate of this cluster: {error}.") from error


def _hosts(config: BrokerConfig) -> list[str]:
    """Return the names under which a node is reached."""
    advertised = (*config.advertised_listeners, *config.advertised_controller_listeners)
    return list(dict.fromkeys([*_LOCAL_HOSTS, *(each.host for each in advertised if each.host)]))


def _address(listener: ConfiguredListener) -> str:
    host = listener.host or HOST
    return f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"


def _client_addresses(config: BrokerConfig) -> list[str]:
    """Return the address for clients: the first listener that brokers do not keep for themselves."""
    internal = config.inter_broker_listener_name
    return [_address(each) for each in config.advertised_listeners if each.name != internal][:1]


def _internal_addresses(config: BrokerConfig) -> list[str]:
    internal = config.inter_broker_listener_name
    return [_address(each) for each in config.advertised_listeners if each.name == internal]
