"""The directory of a secure cluster: its files, their modes, and renewals."""

import datetime
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest
from cryptography import x509

from broker.cli.node.scram_credential import scram_record
from broker.cli.node.secret_rotation import rotate_secrets
from broker.cli.node.secure_cluster import SecureDirectory
from broker.cli.shared.failure import CommandFailed
from broker.config.broker_config import BrokerConfig
from broker.config.load import load_config, read_properties
from broker.node.tls import NodeTls
from broker.supervisor.layout import node_layout
from broker.supervisor.secure_settings import secure_node_settings
from broker.tls.authority import IssuedCertificate, key_id
from protocol.messages.metadata_records import UserScramCredentialRecord

NOW = datetime.datetime.now(datetime.UTC)


def configs(directory: Path, overrides: Sequence[str] = ()) -> list[BrokerConfig]:
    places = [node_layout(index, directory, 9092, {0: 0, 1: 0}) for index in range(2)]
    settings = [each.settings([*secure_node_settings(each, directory / "secure"), *overrides]) for each in places]
    return [load_config(None, of_node, {})[0] for of_node in settings]


@pytest.fixture
def security(tmp_path: Path) -> SecureDirectory:
    return SecureDirectory(tmp_path / "secure")


def test_only_the_owner_can_read_what_is_made(tmp_path: Path, security: SecureDirectory) -> None:
    assert not security.is_complete()
    security.prepare(configs(tmp_path), NOW)
    assert security.is_complete()
    assert stat.S_IMODE(security.path.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in security.path.iterdir()}
    assert set(modes.values()) == {0o600}
    assert sorted(modes) == [
        "admin.password",
        "ca-key.pem",
        "ca.pem",
        "client.properties",
        "http.credentials",
        "librdkafka.properties",
        "node-1.pem",
        "node-2.pem",
        "node-client.properties",
    ]


def test_clients_get_the_password_that_the_record_is_made_from(tmp_path: Path, security: SecureDirectory) -> None:
    credential = security.prepare(configs(tmp_path), NOW)
    record = scram_record(credential).message
    assert isinstance(record, UserScramCredentialRecord)
    assert (record.name, record.mechanism) == ("admin", 2)
    assert security.password in credential
    kafka = read_properties(str(security.client_file))
    assert kafka["bootstrap.servers"] == "127.0.0.1:9092,127.0.0.1:9102"
    assert f'username="admin" password="{security.password}";' in kafka["sasl.jaas.config"]
    assert read_properties(str(security.path / "librdkafka.properties"))["sasl.password"] == security.password
    nodes = read_properties(str(security.path / "node-client.properties"))
    assert nodes["bootstrap.servers"] == "127.0.0.1:9094,127.0.0.1:9104"


def test_second_start_keeps_secrets_and_follows_ports(tmp_path: Path, security: SecureDirectory) -> None:
    security.prepare(configs(tmp_path), NOW)
    before = {path.name: path.read_text() for path in security.path.iterdir()}
    security.prepare(configs(tmp_path, ["advertised.listeners=CLIENT://localhost:1,INTERNAL://127.0.0.1:2"]), NOW)
    changed = {path.name for path in security.path.iterdir() if before[path.name] != path.read_text()}
    assert changed == {"client.properties", "librdkafka.properties", "node-client.properties"}


def test_certificates_follow_hosts_and_time(tmp_path: Path, security: SecureDirectory) -> None:
    security.prepare(configs(tmp_path), NOW)
    file = security.path / "node-1.pem"
    first = file.read_text()
    security.prepare(configs(tmp_path, ["advertised.listeners=CLIENT://box:1,INTERNAL://box:2"]), NOW)
    second = file.read_text()
    assert IssuedCertificate.from_pem(second).hosts == {"127.0.0.1", "localhost", "box"}
    assert first != second
    security.prepare(configs(tmp_path), NOW + datetime.timedelta(days=360))
    assert file.read_text() != second


def test_renewal_keeps_names_and_replaces_keys(tmp_path: Path, security: SecureDirectory) -> None:
    security.prepare(configs(tmp_path), NOW)
    former, password = (security.path / "node-2.pem").read_text(), security.password
    assert security.renew_certificates(NOW) == ["node-1", "node-2"]
    renewed = (security.path / "node-2.pem").read_text()
    assert renewed.partition("-----END")[0] != former.partition("-----END")[0]
    assert IssuedCertificate.from_pem(renewed).name == "node-2"
    security.set_password("another")
    assert security.password == "another" != password
    assert 'password="another"' in read_properties(str(security.client_file))["sasl.jaas.config"]


def issuers(security: SecureDirectory) -> list[bytes | None]:
    files = sorted(security.path.glob("node-[0-9]*.pem"))
    return [IssuedCertificate.from_pem(file.read_text()).issuer_key_id for file in files]


def authorities(security: SecureDirectory) -> list[bytes]:
    return [key_id(each) for each in x509.load_pem_x509_certificates((security.path / "ca.pem").read_bytes())]


def test_authority_is_replaced_in_three_rotations(tmp_path: Path, security: SecureDirectory) -> None:
    def rotate(*, with_authority: bool = False) -> None:
        security.drop_former_authorities(NOW)
        names = security.renew_authority(NOW) if with_authority else security.renew_certificates(NOW)
        assert names == ["node-1", "node-2"]

    security.prepare(configs(tmp_path), NOW)
    (former,) = authorities(security)
    rotate(with_authority=True)
    new, still = authorities(security)
    assert still == former != new
    assert issuers(security) == [former, former]
    rotate()
    assert authorities(security) == [new, former]
    assert issuers(security) == [new, new]
    rotate()
    assert authorities(security) == [new]
    assert issuers(security) == [new, new]


def test_crash_before_the_new_key_keeps_the_former_authority(tmp_path: Path, security: SecureDirectory) -> None:
    security.prepare(configs(tmp_path), NOW)
    former_key, former = (security.path / "ca-key.pem").read_text(), authorities(security)
    security.renew_authority(NOW)
    (security.path / "ca-key.pem").write_text(former_key)
    assert len(authorities(security)) == 2
    security.prepare(configs(tmp_path), NOW)
    security.drop_former_authorities(NOW)
    assert authorities(security) == former


def test_foreign_files_are_one_sentence(tmp_path: Path, security: SecureDirectory) -> None:
    security.prepare(configs(tmp_path), NOW)
    (security.path / "ca-key.pem").write_text("not a key")
    with pytest.raises(CommandFailed, match="are not the certificate and the key of an authority"):
        security.prepare(configs(tmp_path), NOW)


def test_open_cluster_has_nothing_to_rotate(security: SecureDirectory) -> None:
    with pytest.raises(CommandFailed, match="is not of a cluster that was started with --secure"):
        rotate_secrets(security, NOW)


def test_nodes_prove_their_names_by_certificate(tmp_path: Path, security: SecureDirectory) -> None:
    found = configs(tmp_path)
    security.prepare(found, NOW)
    tls = NodeTls(found[1])
    for name in ("CONTROLLER", "INTERNAL"):
        rules = tls.listeners[name].loaded.rules
        assert rules.name_of("CN=node-2") == "node-2"
        assert tls.listeners[name].loaded.settings.client_auth == "required"
    assert found[1].listener_protocols["CLIENT"] == "SASL_SSL"
