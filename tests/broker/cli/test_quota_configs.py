"""The command configs for quotas of users, clients and addresses."""

import json

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)
from protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from tests.broker.cli.conftest import Ottla
from tests.support.fakes.fake_broker import FakeBroker


@pytest.fixture
def quotas(broker: FakeBroker) -> list[EntryData]:
    """The entities that the broker describes, whatever the filter."""
    entries: list[EntryData] = []

    def alter(request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
        parts = [AlterClientQuotasResponseEntityData(p.entity_type, p.entity_name) for p in request.entries[0].entity]
        return AlterClientQuotasResponse(0, [AlterClientQuotasResponseEntryData(0, None, parts)])

    broker.answer(ApiKey.DESCRIBE_CLIENT_QUOTAS, lambda _: DescribeClientQuotasResponse(entries=entries))
    broker.answer(ApiKey.ALTER_CLIENT_QUOTAS, alter)
    return entries


def altered(broker: FakeBroker) -> tuple[list[tuple[str, str | None]], list[tuple[str, float, bool]]]:
    (request,) = broker.received(AlterClientQuotasRequest)
    (entry,) = request.entries
    return [(p.entity_type, p.entity_name) for p in entry.entity], [(o.key, o.value, o.remove) for o in entry.ops]


def entry(entity: dict[str, str | None], **limits: float) -> EntryData:
    parts = [EntityData(kind, name) for kind, name in entity.items()]
    return EntryData(parts, [ValueData(key, value) for key, value in limits.items()])


LIMIT = ("--alter", "--add-config", "producer_byte_rate=1024")


@pytest.mark.parametrize(
    ("arguments", "entity", "message"),
    [
        (("--user", "u"), [("user", "u")], "Completed updating config for user u."),
        (("--user-defaults",), [("user", None)], "Completed updating default config for users in the cluster."),
        (("--client", "c"), [("client-id", "c")], "Completed updating config for client c."),
        (
            ("--entity-type", "users", "--entity-name", "u", "--entity-type", "clients", "--entity-default"),
            [("user", "u"), ("client-id", None)],
            "Completed updating config for user u.",
        ),
        (
            ("--entity-type", "clients", "--entity-default", "--entity-type", "users", "--entity-name", "u"),
            [("client-id", None), ("user", "u")],
            "Completed updating default config for clients in the cluster.",
        ),
        (("--ip", "10.0.0.1"), [("ip", "10.0.0.1")], "Completed updating config for ip 10.0.0.1."),
    ],
)
def test_quotas_of_an_entity_are_set(
    broker: FakeBroker,
    quotas: list[EntryData],
    ottla: Ottla,
    arguments: tuple[str, ...],
    entity: list[tuple[str, str | None]],
    message: str,
) -> None:
    assert ottla("configs", *LIMIT, *arguments).lines == [message]
    assert altered(broker) == (entity, [("producer_byte_rate", 1024.0, False)])


def test_only_present_quotas_are_removed(broker: FakeBroker, quotas: list[EntryData], ottla: Ottla) -> None:
    quotas.append(entry({"user": "u"}, consumer_byte_rate=1.0))
    arguments = ("configs", "--alter", "--user", "u", "--delete-config")
    assert ottla(*arguments, "producer_byte_rate").err == "Error: Invalid config(s): producer_byte_rate\n"
    assert ottla(*arguments, "consumer_byte_rate").code == 0
    assert altered(broker)[1] == [("consumer_byte_rate", 0.0, True)]


def test_value_that_is_no_number_is_refused(quotas: list[EntryData], ottla: Ottla) -> None:
    outcome = ottla("configs", "--alter", "--user", "u", "--add-config", "producer_byte_rate=much")
    assert outcome.err == "Error: Cannot parse quota configuration value for producer_byte_rate: much\n"


def test_refused_alteration_prints_the_message_of_the_controller(
    broker: FakeBroker, quotas: list[EntryData], ottla: Ottla
) -> None:
    refusal = AlterClientQuotasResponseEntryData(ErrorCode.INVALID_REQUEST, "the entity has no quota x", [])
    broker.answer(ApiKey.ALTER_CLIENT_QUOTAS, lambda _: AlterClientQuotasResponse(0, [refusal]))
    assert ottla("configs", "--alter", "--user", "u", "--add-config", "x=1").err == "Error: the entity has no quota x\n"


def test_quotas_are_described(broker: FakeBroker, quotas: list[EntryData], ottla: Ottla) -> None:
    quotas.append(entry({"user": "u", "client-id": None}, producer_byte_rate=1024.0, request_percentage=12.5))
    quotas.append(entry({"user": None}, consumer_byte_rate=1.0))
    arguments = ("configs", "--describe", "--entity-type", "users", "--entity-type", "clients", "--entity-name", "u")
    assert ottla(*arguments).lines == [
        "Quota configs for the default user-principal are consumer_byte_rate=1.0",
        "Quota configs for user-principal 'u', the default client-id are producer_byte_rate=1024.0, "
        "request_percentage=12.5",
    ]
    (request,) = broker.received(DescribeClientQuotasRequest)
    assert request.strict
    assert [(c.entity_type, c.match_type, c.match) for c in request.components] == [
        ("user", 0, "u"),
        ("client-id", 2, None),
    ]
    printed = json.loads(ottla(*arguments, "--json").out)
    assert printed[0] == {"entity": {"user": None}, "quotas": {"consumer_byte_rate": 1.0}}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--describe", "--entity-type", "users", "--entity-type", "ips"),
        ("--describe", "--entity-type", "users", "--entity-type", "topics"),
        ("--describe", "--entity-type", "users", "--entity-type", "users"),
        ("--describe", "--entity-type", "users", "--entity-name", "a", "--entity-name", "b"),
        ("--alter", "--entity-type", "users", "--add-config", "a=1"),
        ("--alter", "--user", "u"),
    ],
)
def test_wrong_usage_is_refused(arguments: tuple[str, ...], ottla: Ottla) -> None:
    assert ottla("configs", *arguments).code == 2
