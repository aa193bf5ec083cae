"""SCRAM credentials of users, as `ottla configs` alters and prints them (kafka-configs, KIP-554)."""

import hashlib
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence

import click

from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.scram_mechanisms import MECHANISMS, MIN_ITERATIONS, SALT_BYTES
from broker.client import Client, raise_for
from protocol.errors import ErrorCode
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    UserName,
)

_CREDENTIAL = re.compile(r"(?:iterations=(?P<iterations>[^,]*),)?password=(?P<password>.*)", re.DOTALL)
_ITERATIONS = re.compile(r"-?[0-9]{1,9}")
_NAMES = {mechanism.number: name for name, mechanism in MECHANISMS.items()}


def names_credentials(kinds: Sequence[str], names: Sequence[str], keys: Iterable[str]) -> bool:
    """Tell whether the keys of an alteration are SCRAM mechanisms. Raises CommandFailed for a mixture."""
    keys = list(keys)
    mechanisms = [key for key in keys if key in MECHANISMS]
    if not mechanisms:
        return False
    if list(kinds) != ["users"]:
        raise CommandFailed(
            f"Only quotas can be altered for {' and '.join(kinds)}. Unexpected config names: {', '.join(mechanisms)}"
        )
    if "" in names:
        raise CommandFailed("SCRAM credentials belong to a named user; there are none of the default user.")
    if len(mechanisms) < len(keys):
        raise CommandFailed("Quotas and SCRAM credentials of users cannot be altered together.")
    return True


def alter_credentials(client: Client, user: str, additions: Mapping[str, str], deletions: Sequence[str]) -> None:
    """Set and remove SCRAM credentials of a user. Raises CommandFailed, KafkaError."""
    request = AlterUserScramCredentialsRequest(
        [ScramCredentialDeletion(user, MECHANISMS[name].number) for name in deletions],
        [_parsed(user, name, text) for name, text in additions.items()],
    )
    for result in client.call(request, AlterUserScramCredentialsResponse).results:
        raise_for(result.error_code, f"SCRAM credentials of {user}", result.error_message)
    click.echo(f"Completed updating config for user {user}.")


def describe_credentials(client: Client, names: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
    """Return the iterations by mechanism by user: of the named users, of all without names. Raises KafkaError."""
    request = DescribeUserScramCredentialsRequest([UserName(name) for name in names])
    response = client.call(request, DescribeUserScramCredentialsResponse)
    raise_for(response.error_code, "SCRAM credentials", response.error_message)
    return {result.user: _iterations_by_name(result) for result in response.results if _has_credentials(result)}


def upsertion(
    user: str,
    mechanism: str,
    password: str,
    iterations: int = MIN_ITERATIONS,
    random_bytes: Callable[[int], bytes] = secrets.token_bytes,
) -> ScramCredentialUpsertion:
    """Build the part of a request that gives a user a password, as a salted hash (RFC 5802, Hi)."""
    known, salt = MECHANISMS[mechanism], random_bytes(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(known.hash_name, password.encode(), salt, iterations)
    return ScramCredentialUpsertion(user, known.number, iterations, salt, salted)


def _parsed(user: str, mechanism: str, text: str) -> ScramCredentialUpsertion:
    """Parse "iterations=8192,password=…". Raises CommandFailed, whose message never has the password."""
    match = _CREDENTIAL.fullmatch(text)
    if match is None:
        raise CommandFailed(f"Invalid credential of {mechanism}: it is not of the form [iterations=…,password=…].")
    written = match["iterations"]
    if written is not None and _ITERATIONS.fullmatch(written) is None:
        raise CommandFailed(f"Invalid credential of {mechanism}: iterations is not a number.")
    iterations = MIN_ITERATIONS if written in (None, "-1") else int(written)
    if iterations < MIN_ITERATIONS:
        raise CommandFailed(
            f"Iterations {iterations} is less than the minimum {MIN_ITERATIONS} required for {mechanism}"
        )
    return upsertion(user, mechanism, match["password"], iterations)


def _has_credentials(result: DescribeUserScramCredentialsResult) -> bool:
    if result.error_code == ErrorCode.RESOURCE_NOT_FOUND:
        return False
    raise_for(result.error_code, f"SCRAM credentials of {result.user}", result.error_message)
    return True


def _iterations_by_name(result: DescribeUserScramCredentialsResult) -> Mapping[str, int]:
    infos = result.credential_infos
    return {_NAMES.get(info.mechanism, f"mechanism {info.mechanism}"): info.iterations for info in infos}
