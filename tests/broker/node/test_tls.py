"""TLS of a node: settings by listener, refusals at start, and reloads."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.config.load import parse_config
from broker.metadata.image.config_image import ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import EMPTY_IMAGE
from broker.net.peer import TcpConnect
from broker.net.tls_connect import TlsConnect
from broker.node.tls import NodeTls
from protocol.messages.metadata_records import ConfigRecord
from tests.support.certificates import CertificateAuthority
from tests.support.tls import inline

AUTHORITY = CertificateAuthority()
FIRST, SECOND = AUTHORITY.issue("first", "localhost"), AUTHORITY.issue("second", "localhost")
DEADLINE_S = 10
INLINE_CONTROLLER = {f"listener.name.controller.{name}": value for name, value in inline(AUTHORITY, FIRST).items()}


def config(given: Mapping[str, str]) -> BrokerConfig:
    return parse_config(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "INSIDE",
            "listeners": "INSIDE://localhost:9092,PLAIN://localhost:9091,CONTROLLER://localhost:9093",
            "listener.security.protocol.map": "INSIDE:SSL,PLAIN:PLAINTEXT,CONTROLLER:SSL",
            "ottla.ssl.reload.interval.ms": "10",
            **given,
        }
    )


def with_file(path: Path) -> dict[str, str]:
    settings = {name: value for name, value in inline(AUTHORITY).items() if "keystore" not in name}
    return settings | {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}


def dynamic(present: BrokerConfig, **given: str) -> BrokerConfig:
    settings = {f"listener.name.inside.{name.replace('_', '.')}": value for name, value in given.items()}
    return present.with_dynamic(cluster={}, broker=settings)[0]


async def test_connections_to_a_listener_follow_its_protocol() -> None:
    tls = NodeTls(config(inline(AUTHORITY, FIRST)))
    loop = asyncio.get_running_loop()
    assert sorted(tls.listeners) == ["CONTROLLER", "INSIDE"]
    assert isinstance(tls.connect(loop, "INSIDE"), TlsConnect)
    assert isinstance(tls.connect(loop, "PLAIN"), TcpConnect)


def test_settings_of_a_listener_take_precedence() -> None:
    own = {f"listener.name.inside.{name}": value for name, value in inline(AUTHORITY, SECOND).items()}
    tls = NodeTls(config(inline(AUTHORITY, FIRST) | own | {"listener.name.inside.ssl.client.auth": "required"}))
    inside, controller = tls.listeners["INSIDE"].loaded.settings, tls.listeners["CONTROLLER"].loaded.settings
    assert inside.key_store is not None
    assert controller.key_store is not None
    assert (inside.key_store.certificates, inside.client_auth) == (SECOND.chain_pem.strip(), "required")
    assert (controller.key_store.certificates, controller.client_auth) == (FIRST.chain_pem.strip(), "none")


def test_clients_of_remote_metadata_may_have_a_certificate_of_their_own() -> None:
    prefix = "rlmm.config.remote.log.metadata.common.client."
    own = {prefix + name: value for name, value in inline(AUTHORITY, SECOND).items() if "keystore" in name}
    settings = inline(AUTHORITY, FIRST) | own | {"remote.log.storage.system.enable": "true"}
    tls = NodeTls(config(settings | {"remote.log.storage.manager.class.name": "local"}))
    found = tls.listeners["remote metadata"].loaded.settings
    assert found.key_store is not None
    assert found.key_store.certificates == SECOND.chain_pem.strip()
    assert found.trust_store == tls.listeners["INSIDE"].loaded.settings.trust_store


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({}, "ssl.keystore.location"),
        (
            {"listener.name.inside.ssl.keystore.location": "/missing", "listener.name.inside.ssl.keystore.type": "PEM"},
            None,
        ),
        ({"ssl.principal.mapping.rules": "RULE:x"}, "ssl.principal.mapping.rules"),
        ({"listener.name.controller.ssl.enabled.protocols": "SSLv3"}, None),
    ],
)
def test_unusable_settings_stop_the_start(given: dict[str, str], key: str | None) -> None:
    with pytest.raises(ConfigError) as refused:
        NodeTls(config({**INLINE_CONTROLLER, **given} if given else {}))
    assert refused.value.sentence.startswith(key or next(iter(given)))
    assert "geheim" not in refused.value.sentence


async def test_changed_files_and_configs_are_loaded_and_unusable_ones_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = FIRST.write_pem(tmp_path / "key.pem")
    static = config(with_file(path))
    tls = NodeTls(static)
    inside = tls.listeners["INSIDE"]
    first = inside.loaded
    await tls.reload(static)
    assert inside.loaded is first

    os.replace(SECOND.write_pem(tmp_path / "new.pem"), path)
    await tls.reload(static)
    second = inside.loaded
    assert second is not first
    path.write_text("not a key")
    for _ in range(3):
        await tls.reload(static)
    assert inside.loaded is second

    with pytest.raises(ConfigError, match=r"^listener\.name\.inside\.ssl\.keystore\.location cannot be read"):
        await tls.check(dynamic(static, ssl_keystore_location=str(tmp_path / "missing")))
    present = dynamic(static, ssl_keystore_location=str(FIRST.write_pem(tmp_path / "other.pem")))
    await tls.reload(present)
    third = inside.loaded
    assert third.settings.files == (str(tmp_path / "other.pem"),)
    for broken in (
        {"ssl_keystore_location": str(tmp_path / "missing")},
        {"ssl_keystore_location": str(tmp_path / "other.pem"), "ssl_enabled_protocols": "SSLv3"},
    ):
        for _ in range(3):
            await tls.reload(dynamic(static, **broken))
    assert inside.loaded is third

    reasons = [str(record.fields["reason"]) for record in caplog.records if record.levelname == "ERROR"]  # type: ignore[attr-defined]
    assert [reason.partition(" ")[0] for reason in reasons] == [
        "ssl.keystore.location",  # of CONTROLLER
        "ssl.keystore.location",  # of INSIDE
        "listener.name.inside.ssl.keystore.location",
        "listener.name.inside.ssl.enabled.protocols",
    ], "an unusable change costs one line, however often it is found"


async def test_changed_broker_configs_are_loaded_at_once(tmp_path: Path) -> None:
    static = config(with_file(FIRST.write_pem(tmp_path / "key.pem")) | {"ottla.ssl.reload.interval.ms": "3600000"})
    tls = NodeTls(static)
    reloaded = asyncio.Event()

    def current() -> BrokerConfig:
        reloaded.set()
        return static

    watching = asyncio.create_task(tls.watch(current))
    image = EMPTY_IMAGE
    delta = MetadataDelta(image)
    delta.replay(
        ConfigRecord(resource_type=ResourceType.BROKER, resource_name="1", name="log.cleaner.threads", value="2")
    )
    tls.on_metadata(delta, image)
    async with asyncio.timeout(DEADLINE_S):
        await reloaded.wait()
    watching.cancel()


@pytest.mark.parametrize(("mode", "warnings"), [(0o644, 1), (0o640, 0), (0o600, 0)])
def test_key_store_that_everybody_may_read_warns_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warnings: int
) -> None:
    path = FIRST.write_pem(tmp_path / "own.pem")
    path.chmod(mode)
    NodeTls(config(with_file(path)))
    found = [record.getMessage() for record in caplog.records if "may read the private key" in record.getMessage()]
    assert len(found) == warnings
