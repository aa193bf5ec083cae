"""The authorizer that a node starts with."""

from collections.abc import Mapping

import pytest

from broker.api.pipeline.permission import Permission
from broker.authorizer.standard import STANDARD_AUTHORIZER, StandardAuthorizer
from broker.config.errors import ConfigError
from broker.config.load import load_config, parse_config
from broker.node.security.authorization import build_authorizer, early_listeners

NODE = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.listener.names": "ONE,TWO",
    "listeners": "ONE://127.0.0.1:0,TWO://127.0.0.1:0",
    "listener.security.protocol.map": "ONE:PLAINTEXT,TWO:PLAINTEXT",
    "controller.quorum.voters": "1@127.0.0.1:9093",
}
OWN = "tests.broker.node.test_authorization"


class OnlySettings:
    """An authorizer of one's own that allows the principal `own.user`."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.user = settings["own.user"]

    def is_allowed(self, principal: str, host: str, permission: Permission, resource_name: str) -> bool:
        return principal == self.user

    def is_allowed_on_some(self, principal: str, host: str, permission: Permission) -> bool:
        return principal == self.user


class NoAuthorizer:
    """A class that lacks the methods of an authorizer."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        pass


def with_settings(settings: Mapping[str, str]) -> object:
    return build_authorizer(parse_config({**NODE, **settings}))


def test_node_without_class_name_has_no_authorizer() -> None:
    assert with_settings({}) is None


def test_class_name_of_kafka_is_the_standard_authorizer() -> None:
    assert isinstance(with_settings({"authorizer.class.name": STANDARD_AUTHORIZER}), StandardAuthorizer)


@pytest.mark.parametrize("name", [f"{OWN}:OnlySettings", f"{OWN}.OnlySettings"])
def test_own_class_gets_the_settings_of_the_node(name: str) -> None:
    authorizer = with_settings({"authorizer.class.name": name, "own.user": "User:a"})
    assert authorizer.__class__.__name__ == "OnlySettings"
    assert authorizer.user == "User:a"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"authorizer.class.name": "Standard"}, "authorizer.class.name must be org.apache.kafka"),
        (
            {"authorizer.class.name": "no.such.Authorizer"},
            "authorizer.class.name names no.such.Authorizer, which cannot",
        ),
        (
            {"authorizer.class.name": f"{OWN}:NoAuthorizer"},
            f"authorizer.class.name names {OWN}:NoAuthorizer, which has",
        ),
        ({"authorizer.class.name": f"{OWN}:OnlySettings"}, "which does not start: KeyError"),
        ({"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "root"}, 'super.users has "root" but'),
    ],
    ids=["no-path", "not-found", "no-protocol", "fails", "super-users"],
)
def test_setting_that_cannot_be_used_stops_the_start(settings: Mapping[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        with_settings(settings)
    assert sentence in raised.value.sentence
    assert "\n" not in raised.value.sentence


@pytest.mark.parametrize(
    ("settings", "early"),
    [
        ({"authorizer.class.name": STANDARD_AUTHORIZER}, {"ONE", "TWO"}),
        ({"authorizer.class.name": STANDARD_AUTHORIZER, "early.start.listeners": "two"}, {"TWO"}),
        ({"early.start.listeners": "two"}, {"ONE", "TWO"}),
    ],
)
def test_controller_listeners_start_early_unless_named_otherwise(settings: Mapping[str, str], early: set[str]) -> None:
    config = parse_config({**NODE, **settings})
    assert early_listeners(config, build_authorizer(config)) == early


def test_settings_of_the_authorizer_warn_where_they_have_no_effect() -> None:
    overrides = ["super.users=User:a", "allow.everyone.if.no.acl.found=true"]
    _, warnings = load_config(None, overrides, {})
    assert [warning.partition(" ")[0] for warning in warnings] == ["super.users", "allow.everyone.if.no.acl.found"]
    assert load_config(None, [*overrides, f"authorizer.class.name={STANDARD_AUTHORIZER}"], {})[1] == []
