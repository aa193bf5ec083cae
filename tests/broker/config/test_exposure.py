"""Warnings about open listeners and passwords on command lines."""

import pytest

from broker.config.exposure import exposure_warnings, is_secret, override_warnings
from broker.config.load import load_config


def warnings_of(*settings: str) -> list[str]:
    return exposure_warnings(load_config(None, settings, {})[0])


def test_loopback_is_safe() -> None:
    assert warnings_of() == []
    assert warnings_of("listeners=PLAINTEXT://localhost:0,CONTROLLER://[::1]:0", "ottla.http.listener=") == []


def test_one_sentence_names_all_open_listeners() -> None:
    (warning,) = warnings_of("listeners=PLAINTEXT://:9092,CONTROLLER://10.0.0.1:9093")
    assert warning.startswith("Listeners PLAINTEXT (*:9092) and CONTROLLER (10.0.0.1:9093) let in every client")
    (warning,) = warnings_of("listeners=PLAINTEXT://10.0.0.1:9092")
    assert warning.startswith("Listener PLAINTEXT (10.0.0.1:9092) lets in every client")


def test_http_on_other_addresses_warns() -> None:
    (warning,) = warnings_of("ottla.http.listener=0.0.0.0:9644")
    assert warning.startswith("ottla.http.listener (0.0.0.0:9644) shows metrics to the whole network")


@pytest.mark.parametrize(
    ("protocol", "auth", "warns"),
    [
        ("SSL", "ssl.client.auth=required", False),
        ("SSL", "ssl.client.auth=requested", True),
        ("SSL", "listener.name.plaintext.ssl.client.auth=required", False),
        ("SASL_SSL", "ssl.client.auth=none", False),
        ("SASL_PLAINTEXT", "ssl.client.auth=none", False),
    ],
)
def test_listeners_that_authenticate_are_safe(protocol: str, auth: str, warns: bool) -> None:
    protocols = f"listener.security.protocol.map=PLAINTEXT:{protocol},CONTROLLER:PLAINTEXT"
    found = warnings_of("listeners=PLAINTEXT://:9092", protocols, "inter.broker.listener.name=PLAINTEXT", auth)
    assert bool(found) == warns


def test_password_in_an_override_warns_without_the_password() -> None:
    given = ["ssl.key.password=hunter2", "ssl.key.password=hunter3", "num.partitions=3"]
    assert override_warnings(given) == [
        "--override ssl.key.password shows a password to every user of this machine; set it in the configuration file."
    ]


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("listener.name.client.scram-sha-256.sasl.jaas.config", True),
        ("rsm.config.s3.secret.access.key", True),
        ("rlmm.config.remote.log.metadata.common.client.sasl.jaas.config", True),
        ("ssl.keystore.location", False),
        ("rsm.config.storage.root", False),
    ],
)
def test_settings_with_passwords_are_known(name: str, secret: bool) -> None:
    assert is_secret(name) is secret
