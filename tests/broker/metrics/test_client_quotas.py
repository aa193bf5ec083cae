"""The metrics of quotas: names, labels, and the number of clients."""

import asyncio
from collections.abc import Iterable

import pytest

from broker.metadata.controller.mutation_quota import MutationFigures
from broker.metadata.image.quota_image import quota_entity
from broker.metrics import client_quotas
from broker.metrics.client_quotas import client_quota_families
from broker.metrics.exposition import Exposition
from broker.metrics.fetchers import replication_quota_families
from broker.quotas.client_quotas import BrokerQuotas, QuotaClient
from broker.rates.windowed_rate import QuotaWindows
from broker.replication.replication_quota import ReplicationQuota


class OneMutation:
    """An active controller with one mutation quota in use."""

    def mutation_figures(self, now_ms: int, limit: int) -> Iterable[MutationFigures]:
        return [MutationFigures(("alice", None), 2.0, 500.0, -1.0)]


def samples(quotas: BrokerQuotas | None) -> list[str]:
    families = client_quota_families(quotas, OneMutation(), lambda: 0.0)
    page = asyncio.run(Exposition(families).render()).decode()
    return [line for line in page.splitlines() if line.startswith("kafka_server_quota")]


MUTATIONS = [
    'kafka_server_quota_mutation_rate{clientId="",resource="ControllerMutation",user="alice"} 2.0',
    'kafka_server_quota_tokens{clientId="",resource="ControllerMutation",user="alice"} -1.0',
]
MUTATION_THROTTLE = 'kafka_server_quota_throttle_time{clientId="",resource="ControllerMutation",user="alice"} 500.0'


def test_node_without_broker_shows_mutations_alone() -> None:
    assert samples(None) == [*MUTATIONS, MUTATION_THROTTLE]


def test_clients_with_a_quota_are_shown() -> None:
    quotas, client = BrokerQuotas(QuotaWindows()), QuotaClient("ANONYMOUS", "app")
    quotas.fetch.set_rate(quota_entity({"client-id": None}), 10.0)
    quotas.fetch.charge(client, 200, 0.0)
    quotas.fetch.on_throttled(client, 70, 0.0)
    assert samples(quotas) == [
        'kafka_server_quota_byte_rate{clientId="app",resource="Fetch",user=""} 20.0',
        *MUTATIONS,
        'kafka_server_quota_throttle_time{clientId="app",resource="Fetch",user=""} 70.0',
        MUTATION_THROTTLE,
        'kafka_server_quota_exempt_request_time{resource="Request"} 0.0',
    ]


def test_traffic_of_throttled_replicas_is_shown() -> None:
    leader, follower = ReplicationQuota(), ReplicationQuota()
    leader.record(500, 0.0)
    families = replication_quota_families(leader, follower, lambda: 0.0)
    assert {family.name: [sample.value for sample in family.read()] for family in families} == {
        "kafka_server_leaderreplication_byte_rate": [500.0],
        "kafka_server_followerreplication_byte_rate": [0.0],
    }


def test_clients_are_limited_to_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "CLIENTS_MAX", 3)
    quotas = BrokerQuotas(QuotaWindows())
    quotas.produce.set_rate(quota_entity({"client-id": None}), 10.0)
    for number in range(10):
        quotas.produce.charge(QuotaClient("ANONYMOUS", str(number)), 1, 0.0)
    rates = [line for line in samples(quotas) if line.startswith("kafka_server_quota_byte_rate")]
    assert [f'clientId="{number}"' in line for number, line in zip((9, 8, 7), rates, strict=True)] == [True] * 3
