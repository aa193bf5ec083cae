"""Versions that ApiVersions advertises, compared with those that Apache Kafka 4.2 advertises on the same listeners."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from broker.api.cluster.api_versions import ApiVersionsHandler
from protocol.api_keys import API_BY_KEY, FIRST_PRIVATE_KEY, ApiKey
from protocol.messages.api_versions import ApiVersionsRequest
from tests.broker.api.metadata_harness import FixedMetadata, context
from tests.broker.api.pipeline.test_permission import broker_table, controller_table
from tests.broker.metadata.images import image_with

Versions = tuple[int, int]

DIFFERENCES: Final[dict[tuple[str, ApiKey], tuple[Versions | None, Versions | None, str]]] = {
    ("broker", ApiKey.PRODUCE): ((3, 13), (0, 13), "Kafka advertises 0 too, outside its message definitions"),
    ("broker", ApiKey.FETCH_SNAPSHOT): (None, (0, 1), "clients read metadata snapshots from brokers (KIP-630)"),
    ("controller", ApiKey.FETCH): ((4, 18), (12, 18), "followers of the quorum send 12 and later"),
    ("controller", ApiKey.DESCRIBE_DELEGATION_TOKEN): ((1, 3), None, "Kafka's controllers have no handler for it"),
    ("controller", ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS): (
        (0, 0),
        None,
        "Kafka's controllers have no handler for it",
    ),
}
"""Versions of Apache Kafka, versions of Ottla, and the reason. docs/differences-from-kafka.md lists them too."""


@dataclass(frozen=True)
class KafkaApi:
    """A row of the recorded table."""

    key: ApiKey
    versions: Versions
    has_unstable: bool
    listeners: frozenset[str]


def kafka_apis() -> list[KafkaApi]:
    lines = Path(__file__).with_name("apache_kafka_4_2_apis.tsv").read_text().splitlines()
    apis = []
    for line in lines[1:]:
        key, name, versions, unstable, listeners = line.split("\t")
        low, high = map(int, versions.split("-"))
        apis.append(KafkaApi(ApiKey(int(key)), (low, high), unstable != "-", frozenset(listeners.split(","))))
        assert apis[-1].key.name.replace("_", "") == name.upper()
    return apis


KAFKA: Final = kafka_apis()


def advertised(listener: str) -> dict[int, Versions]:
    rows = (broker_table() if listener == "broker" else controller_table()).values()
    handler = ApiVersionsHandler(lambda: list(rows), FixedMetadata(image_with()), kraft_version=lambda: 1)
    response = handler(ApiVersionsRequest("client", "1"), context(4))
    return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}


@pytest.mark.parametrize("listener", ["broker", "controller"])
def test_advertised_versions_are_those_of_kafka(listener: str) -> None:
    theirs = {api.key: api.versions for api in KAFKA if listener in api.listeners}
    ours = advertised(listener)
    found = {
        (listener, ApiKey(key)): (theirs.get(ApiKey(key)), ours.get(key))
        for key in theirs.keys() | ours.keys()
        if theirs.get(ApiKey(key)) != ours.get(key)
    }
    assert found == {place: versions[:2] for place, versions in DIFFERENCES.items() if place[0] == listener}


def test_schemas_have_the_versions_of_kafka() -> None:
    theirs = {api.key: (*api.versions, api.has_unstable) for api in KAFKA}
    ours = {
        ApiKey(key): (api.min_version, api.max_version - api.unstable, bool(api.unstable))
        for key, api in API_BY_KEY.items()
        if key < FIRST_PRIVATE_KEY
    }
    assert ours == theirs
