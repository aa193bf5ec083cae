"""The command delegation-tokens: options, requests and output of kafka-delegation-tokens."""

import base64
import datetime
import json

import pytest

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from tests.broker.cli.conftest import Ottla
from tests.support.fakes.fake_broker import FakeBroker

COMMAND = "delegation-tokens"
DAY_MS = 86_400_000
ALICE, ADMIN = ("User", "alice"), ("User", "admin")


HMAC = b"\x00\xfforward"
HMAC_TEXT = base64.b64encode(HMAC).decode()


def local(time_ms: int) -> str:
    return datetime.datetime.fromtimestamp(time_ms / 1000).strftime("%Y-%m-%dT%H:%M")


@pytest.fixture(autouse=True)
def answers(broker: FakeBroker) -> None:
    times = (DAY_MS, 2 * DAY_MS, 3 * DAY_MS)
    renewers = [DescribedDelegationTokenRenewer("User", name) for name in ("bob", "carol")]
    tokens = [DescribedDelegationToken(*ALICE, *ADMIN, *times, "token-1", HMAC, renewers)]
    broker.answer(
        ApiKey.CREATE_DELEGATION_TOKEN,
        lambda _: CreateDelegationTokenResponse(0, *ALICE, *ADMIN, *times, "token-1", HMAC),
    )
    broker.answer(ApiKey.DESCRIBE_DELEGATION_TOKEN, lambda _: DescribeDelegationTokenResponse(0, tokens))
    broker.answer(ApiKey.RENEW_DELEGATION_TOKEN, lambda _: RenewDelegationTokenResponse(0, 2 * DAY_MS))
    broker.answer(ApiKey.EXPIRE_DELEGATION_TOKEN, lambda _: ExpireDelegationTokenResponse(0, DAY_MS))


def test_token_is_created_for_an_owner(broker: FakeBroker, ottla: Ottla) -> None:
    principals = ("--owner-principal", "User:alice", "--renewer-principal", "User:bob")
    outcome = ottla(COMMAND, "--create", "--max-life-time-period", "-1", *principals)
    assert outcome.lines[0] == "Created delegation token with tokenId : token-1"
    assert outcome.lines[2].split() == [
        "TOKENID",
        "HMAC",
        "OWNER",
        "REQUESTER",
        "RENEWERS",
        "ISSUEDATE",
        "EXPIRYDATE",
        "MAXDATE",
    ]
    dates = [local(days * DAY_MS) for days in (1, 2, 3)]
    assert outcome.lines[4].split() == ["token-1", HMAC_TEXT, "User:alice", "User:admin", "[User:bob]", *dates]
    (request,) = broker.received(CreateDelegationTokenRequest)
    assert (request.owner_principal_type, request.owner_principal_name) == ALICE
    assert [(each.principal_type, each.principal_name) for each in request.renewers] == [("User", "bob")]
    assert request.max_lifetime_ms == -1


def test_token_belongs_to_the_user_by_default(broker: FakeBroker, ottla: Ottla) -> None:
    assert ottla(COMMAND, "--create", "--max-life-time-period", "1000").code == 0
    (request,) = broker.received(CreateDelegationTokenRequest)
    assert (request.owner_principal_type, request.owner_principal_name, request.renewers) == ("", "", [])


def test_tokens_are_described(broker: FakeBroker, ottla: Ottla) -> None:
    outcome = ottla(COMMAND, "--describe", "--owner-principal", "User:alice", "--owner-principal", "User:bob")
    assert outcome.lines[0] == "Total number of tokens : 1"
    assert outcome.lines[4].split()[4:6] == ["[User:bob,", "User:carol]"]
    assert ottla(COMMAND, "--describe").code == 0
    named, every = broker.received(DescribeDelegationTokenRequest)
    assert [(each.principal_type, each.principal_name) for each in named.owners or []] == [ALICE, ("User", "bob")]
    assert every.owners is None


def test_token_is_renewed_and_expired(broker: FakeBroker, ottla: Ottla) -> None:
    renewed = ottla(COMMAND, "--renew", "--hmac", HMAC_TEXT, "--renew-time-period", "-1")
    assert renewed.lines == [f"Completed renew operation. New expiry date : {local(2 * DAY_MS)}"]
    expired = ottla(COMMAND, "--expire", "--hmac", HMAC_TEXT, "--expiry-time-period", "1000")
    assert expired.lines == [f"Completed expire operation. New expiry date : {local(DAY_MS)}"]
    assert [(each.hmac, each.renew_period_ms) for each in broker.received(RenewDelegationTokenRequest)] == [(HMAC, -1)]
    (request,) = broker.received(ExpireDelegationTokenRequest)
    assert (request.hmac, request.expiry_time_period_ms) == (HMAC, 1000)


def test_json_has_times_in_milliseconds(ottla: Ottla) -> None:
    (token,) = json.loads(ottla(COMMAND, "--describe", "--json").out)
    assert token == {
        "tokenId": "token-1",
        "hmac": HMAC_TEXT,
        "owner": "User:alice",
        "requester": "User:admin",
        "renewers": ["User:bob", "User:carol"],
        "issueTimestampMs": DAY_MS,
        "expiryTimestampMs": 2 * DAY_MS,
        "maxTimestampMs": 3 * DAY_MS,
    }
    created = json.loads(ottla(COMMAND, "--create", "--max-life-time-period", "-1", "--json").out)
    assert created["tokenId"] == "token-1"
    renewed = json.loads(ottla(COMMAND, "--renew", "--hmac", HMAC_TEXT, "--renew-time-period", "-1", "--json").out)
    assert renewed == {"expiryTimestampMs": 2 * DAY_MS}


def test_refusal_is_one_sentence(broker: FakeBroker, ottla: Ottla) -> None:
    code = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    broker.answer(ApiKey.RENEW_DELEGATION_TOKEN, lambda _: RenewDelegationTokenResponse(code, 0))
    outcome = ottla(COMMAND, "--renew", "--hmac", HMAC_TEXT, "--renew-time-period", "-1")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert outcome.err.startswith("Error: delegation token: ")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "exactly one action"),
        (("--create", "--describe"), "exactly one action"),
        (("--create",), "--create requires --max-life-time-period"),
        (("--create", "--max-life-time-period", "1", "--hmac", "AA=="), "--hmac cannot be used with --create"),
        (("--renew", "--renew-time-period", "1"), "--renew requires --hmac"),
        (("--expire", "--hmac", "AA=="), "--expire requires --expiry-time-period"),
        (("--describe", "--renew-time-period", "1"), "--renew-time-period cannot be used with --describe"),
        (("--describe", "--owner-principal", "alice"), "principalType:principalName but got alice"),
        (("--expire", "--hmac", "*", "--expiry-time-period", "1"), "--hmac is not base64"),
        (("--create", "--max-life-time-period", str(1 << 63)), "is not in the range"),
    ],
)
def test_wrong_usage_is_refused(arguments: tuple[str, ...], reason: str, ottla: Ottla) -> None:
    outcome = ottla(COMMAND, *arguments)
    assert outcome.code == 2
    assert reason in outcome.err
