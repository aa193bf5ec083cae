"""The command configs for SCRAM credentials of users."""

import hashlib
import json
from pathlib import Path

import pytest

from broker.cli.shared.scram_credentials import upsertion
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from protocol.messages.describe_client_quotas import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from tests.broker.cli.conftest import Ottla
from tests.support.fakes.fake_broker import FakeBroker

SHA_256, SHA_512 = 1, 2
ALTER = ("configs", "--alter", "--user", "alice")


@pytest.fixture(autouse=True)
def credentials(broker: FakeBroker) -> list[DescribeUserScramCredentialsResult]:
    """The users that the broker describes, whatever the request."""
    found: list[DescribeUserScramCredentialsResult] = []
    broker.answer(ApiKey.DESCRIBE_CLIENT_QUOTAS, lambda _: DescribeClientQuotasResponse(entries=[]))
    broker.answer(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, lambda _: DescribeUserScramCredentialsResponse(0, 0, None, found)
    )
    accepted = AlterUserScramCredentialsResult("alice", 0, None)
    broker.answer(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, lambda _: AlterUserScramCredentialsResponse(0, [accepted]))
    return found


def altered(broker: FakeBroker) -> AlterUserScramCredentialsRequest:
    (request,) = broker.received(AlterUserScramCredentialsRequest)
    return request


@pytest.mark.parametrize(
    ("written", "iterations", "password"),
    [
        ("iterations=8192,password=secret", 8192, "secret"),
        ("iterations=-1,password=secret", 4096, "secret"),
        ("password=a,b=c d", 4096, "a,b=c d"),
    ],
)
def test_password_is_sent_as_a_salted_hash(
    written: str, iterations: int, password: str, broker: FakeBroker, ottla: Ottla
) -> None:
    outcome = ottla(*ALTER, "--add-config", f"SCRAM-SHA-512=[{written}]")
    assert outcome.lines == ["Completed updating config for user alice."]
    (sent,) = altered(broker).upsertions
    assert (sent.name, sent.mechanism, sent.iterations) == ("alice", SHA_512, iterations)
    assert sent.salted_password == hashlib.pbkdf2_hmac("sha512", password.encode(), sent.salt, iterations)
    assert len(sent.salt) == 20


def test_credentials_are_read_from_a_file(broker: FakeBroker, ottla: Ottla, tmp_path: Path) -> None:
    file = tmp_path / "alice.properties"
    file.write_text("SCRAM-SHA-256=iterations=4096,password=sécret\n", encoding="utf-8")
    assert ottla(*ALTER, "--add-config-file", str(file)).code == 0
    (sent,) = altered(broker).upsertions
    assert sent.salted_password == hashlib.pbkdf2_hmac("sha256", "sécret".encode(), sent.salt, 4096)


def test_credentials_are_removed_and_set_in_one_request(broker: FakeBroker, ottla: Ottla) -> None:
    added = ("--add-config", "SCRAM-SHA-256=[password=x]")
    assert ottla(*ALTER, *added, "--delete-config", "SCRAM-SHA-512").code == 0
    assert [(each.name, each.mechanism) for each in altered(broker).deletions] == [("alice", SHA_512)]
    assert [each.mechanism for each in altered(broker).upsertions] == [SHA_256]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--user", "a", "--add-config", "SCRAM-SHA-256=[hunter2]"), "Invalid credential of SCRAM-SHA-256"),
        (("--user", "a", "--add-config", "SCRAM-SHA-256=[iterations=,password=hunter2]"), "is not a number"),
        (("--user", "a", "--add-config", "SCRAM-SHA-256=[iterations=-,password=hunter2]"), "is not a number"),
        (("--user", "a", "--add-config", f"SCRAM-SHA-256=[iterations={'9' * 5000},password=hunter2]"), "not a number"),
        (("--user", "a", "--add-config", "SCRAM-SHA-256=[iterations=5,password=hunter2]"), "less than the minimum"),
        (("--user", "a", "--add-config", "SCRAM-SHA-256=[password=hunter2],x=1"), "cannot be altered together"),
        (("--user", "a", "--delete-config", "SCRAM-SHA-256,x"), "cannot be altered together"),
        (("--user-defaults", "--delete-config", "SCRAM-SHA-256"), "belong to a named user"),
        (("--user", "a", "--client", "c", "--delete-config", "SCRAM-SHA-256"), "Only quotas"),
        (("--client", "c", "--add-config", "SCRAM-SHA-256=[password=hunter2]"), "Only quotas"),
    ],
)
def test_wrong_credentials_are_refused_in_one_sentence_without_the_password(
    arguments: tuple[str, ...], reason: str, broker: FakeBroker, ottla: Ottla
) -> None:
    outcome = ottla("configs", "--alter", *arguments)
    assert outcome.code == 1
    assert reason in outcome.err
    assert "hunter2" not in outcome.out + outcome.err
    assert broker.received(AlterUserScramCredentialsRequest) == []


def test_refusal_of_the_controller_is_printed(broker: FakeBroker, ottla: Ottla) -> None:
    refused = AlterUserScramCredentialsResult("alice", ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    broker.answer(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, lambda _: AlterUserScramCredentialsResponse(0, [refused]))
    assert ottla(*ALTER, "--add-config", "SCRAM-SHA-256=[password=x]").err == "Error: Too many iterations\n"


def test_description_of_users_has_their_credentials(
    broker: FakeBroker, ottla: Ottla, credentials: list[DescribeUserScramCredentialsResult]
) -> None:
    quota = EntryData([EntityData("user", "alice")], [ValueData("request_percentage", 5.0)])
    broker.answer(ApiKey.DESCRIBE_CLIENT_QUOTAS, lambda _: DescribeClientQuotasResponse(entries=[quota]))
    both = [CredentialInfo(SHA_256, 4096), CredentialInfo(SHA_512, 8192)]
    credentials.append(DescribeUserScramCredentialsResult("alice", 0, None, both))
    credentials.append(DescribeUserScramCredentialsResult("bob", 0, None, both[:1]))
    assert ottla("configs", "--describe", "--entity-type", "users").lines == [
        "Quota configs for user-principal 'alice' are request_percentage=5.0",
        "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=4096, "
        "SCRAM-SHA-512=iterations=8192",
        "SCRAM credential configs for user-principal 'bob' are SCRAM-SHA-256=iterations=4096",
    ]
    printed = json.loads(ottla("configs", "--describe", "--entity-type", "users", "--json").out)
    assert printed[1] == {
        "entity": {"user": "bob"},
        "quotas": {},
        "scramCredentials": {"SCRAM-SHA-256": {"iterations": 4096}},
    }
    assert printed[0]["quotas"] == {"request_percentage": 5.0}
    assert [*printed[0]["scramCredentials"]] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def test_user_without_credentials_has_no_line(
    broker: FakeBroker, ottla: Ottla, credentials: list[DescribeUserScramCredentialsResult]
) -> None:
    missing = DescribeUserScramCredentialsResult("carol", ErrorCode.RESOURCE_NOT_FOUND, "no such user", [])
    credentials.append(missing)
    assert ottla("configs", "--describe", "--user", "carol").lines == []
    (request,) = broker.received(DescribeUserScramCredentialsRequest)
    assert [each.name for each in request.users or []] == ["carol"]


def test_default_user_and_clients_are_described_without_credentials(broker: FakeBroker, ottla: Ottla) -> None:
    assert ottla("configs", "--describe", "--user-defaults").code == 0
    assert ottla("configs", "--describe", "--user", "a", "--client", "c").code == 0
    assert broker.received(DescribeUserScramCredentialsRequest) == []


def test_salts_are_random() -> None:
    first, second = (upsertion("alice", "SCRAM-SHA-256", "x") for _ in range(2))
    assert first.salt != second.salt
