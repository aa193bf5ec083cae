"""Advertised endpoints of listeners without a host."""

from typing import NamedTuple, cast

import pytest

from broker.config.load import parse_config
from broker.net.server import Server
from broker.node import listeners, quorum
from broker.node.listeners import advertised_endpoints
from broker.node.quorum import own_listeners

NODE = {
    "node.id": "2",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@node-1:9093,2@node-2:9093",
}
BOUND = {"PLAINTEXT": ("::", 9092), "CONTROLLER": ("::", 9093)}


class _Bound(NamedTuple):
    addresses: dict[str, tuple[str, int]]


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (listeners, quorum):
        monkeypatch.setattr(module, "own_host", lambda: "machine.example")


def host(**settings: str) -> str:
    config = parse_config(NODE | {key.replace("_", "."): value for key, value in settings.items()})
    (listener,) = own_listeners(config, BOUND)
    return listener.host


def test_static_voter_address_is_used() -> None:
    assert host() == "node-2"


@pytest.mark.parametrize("address", ["2@:9093", "2@0.0.0.0:9093"])
def test_unusable_voter_address_is_replaced_by_the_hosts_name(address: str) -> None:
    assert host(controller_quorum_voters=f"1@node-1:9093,{address}") == "machine.example"


def test_bound_and_advertised_hosts_take_precedence() -> None:
    assert host(listeners="PLAINTEXT://:9092,CONTROLLER://10.0.0.7:9093") == "10.0.0.7"
    assert host(advertised_listeners="PLAINTEXT://a:9092,CONTROLLER://outside:9093") == "outside"


def test_broker_listener_without_host_advertises_the_hosts_name() -> None:
    config = parse_config(NODE)
    endpoints = advertised_endpoints(config, cast(Server, _Bound(BOUND)))
    assert (endpoints["PLAINTEXT"].host, endpoints["PLAINTEXT"].port) == ("machine.example", 9092)
