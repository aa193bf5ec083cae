"""Limits on connections from dynamic configs and from quotas of addresses."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.quota_image import quota_entity, quota_record
from broker.metadata.image.records import MetadataRecord
from broker.net.limits import NetLimits
from broker.net.listening import ListenAddress, ListenError
from broker.net.request import CloseConnection, ConnectionInfo, Dispatch
from broker.net.server import Server
from broker.node.connection_quotas import ConnectionQuotas
from broker.rates.connection_rates import UNLIMITED
from broker.runtime.controller.dynamic_config import DynamicConfig
from protocol.messages.metadata_records import ConfigRecord
from tests.broker.config.test_broker_config import config_with
from tests.support.fakes.clock import ManualClock

NAMES = {"many.example": {"10.0.0.1", "10.0.0.2"}}
BROKER = 4


def resolve(host: str) -> set[str]:
    if host not in NAMES:
        raise ListenError("unknown")
    return NAMES[host]


def refuse(_connection: ConnectionInfo) -> Dispatch:
    raise CloseConnection("no client connects")


class LimitedBroker:
    """A server that follows metadata changes; a change returns when its background work has ended."""

    def __init__(self) -> None:
        self.dynamic = DynamicConfig(config_with())
        listeners = [ListenAddress("PLAINTEXT", "127.0.0.1", 0)]
        self.server = Server(refuse, NetLimits(), listeners, clock=ManualClock())
        self.image = MetadataImage()
        self._work: list[Coroutine[Any, Any, None]] = []
        self._quotas = ConnectionQuotas(self.server, self.dynamic.get, self._work.append, resolve)

    def change(self, *records: MetadataRecord) -> None:
        delta = MetadataDelta(self.image)
        delta.replay_all(records)
        self.image = delta.apply(self.image.provenance)
        for publisher in (self.dynamic, self._quotas):
            publisher.on_metadata(delta, self.image)
        for work in self._work:
            asyncio.run(work)
        self._work.clear()

    def limit(self, ip: str | None, rate: float | None) -> None:
        self.change(quota_record(quota_entity({"ip": ip}), "connection_creation_rate", rate).message)


@pytest.fixture
def broker() -> LimitedBroker:
    return LimitedBroker()


@pytest.mark.parametrize(("name", "host"), [("10.0.0.9", "10.0.0.9"), ("2001:DB8:0::1", "2001:db8::1")])
def test_quota_of_an_address_is_set_and_removed(broker: LimitedBroker, name: str, host: str) -> None:
    broker.limit(name, 5.0)
    assert broker.server.rates.host_limit(host) == 5
    broker.limit(name, None)
    assert broker.server.rates.host_limit(host) == UNLIMITED


def test_quota_of_a_host_limits_all_its_addresses(broker: LimitedBroker) -> None:
    broker.limit(None, 50.0)
    broker.limit("many.example", 5.0)
    assert [broker.server.rates.host_limit(f"10.0.0.{n}") for n in (1, 2, 3)] == [5, 5, 50]
    broker.limit("many.example", None)
    broker.limit(None, None)
    assert [broker.server.rates.host_limit(f"10.0.0.{n}") for n in (1, 3)] == [UNLIMITED] * 2


def test_unknown_host_is_reported(broker: LimitedBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.limit("nowhere.example", 5.0)
    assert "The quota of a host is not enforced" in caplog.text


def test_dynamic_configs_change_the_limits(broker: LimitedBroker) -> None:
    broker.change(
        ConfigRecord(BROKER, "", "max.connection.creation.rate", "20"),
        ConfigRecord(BROKER, "", "listener.name.plaintext.max.connection.creation.rate", "7"),
    )
    assert (broker.server.rates.limit, broker.server.rates.listener("PLAINTEXT").limit) == (20, 7)
    broker.change(ConfigRecord(BROKER, "", "max.connection.creation.rate", None))
    assert broker.server.rates.limit == UNLIMITED
