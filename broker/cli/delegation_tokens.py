"""`ottla delegation-tokens`: Kafka's kafka-delegation-tokens (KIP-48, KIP-373)."""

import base64
import binascii
import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.options import client_options, json_option, one_action
from broker.cli.shared.output import print_json
from broker.cli.shared.session import session
from broker.client import Client, raise_for
from protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

_ROW: Final = "\n{:<15} {:<30} {:<15} {:<15} {:<25} {:<15} {:<15} {:<15}"
_HEADINGS: Final = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")
_OPTIONS: Final[Mapping[str, tuple[Sequence[str], Sequence[str]]]] = {
    "create": (("max_life_time_period",), ("hmac", "renew_time_period", "expiry_time_period")),
    "renew": (
        ("hmac", "renew_time_period"),
        ("renewer_principal", "max_life_time_period", "expiry_time_period", "owner_principal"),
    ),
    "expire": (
        ("hmac", "expiry_time_period"),
        ("renewer_principal", "max_life_time_period", "renew_time_period", "owner_principal"),
    ),
    "describe": (
        (),
        ("renewer_principal", "max_life_time_period", "renew_time_period", "expiry_time_period", "hmac"),
    ),
}
"""The options that an action requires, and the ones that it excludes."""
_PERIOD: Final = click.IntRange(-(1 << 63), (1 << 63) - 1)
"""A period in ms as a 64-bit number, of which the broker refuses what it does not allow."""

Options = Mapping[str, Any]


class _Principal(NamedTuple):
    """A principal: its type, and its name in the type."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


class _Token(NamedTuple):
    """A token as the command shows it. Times are in ms of the wall clock."""

    token_id: str
    hmac: bytes
    owner: _Principal
    requester: _Principal
    renewers: Sequence[_Principal]
    issued_ms: int
    expiry_ms: int
    max_ms: int


@click.command("delegation-tokens", short_help="Create, renew, expire or describe delegation tokens.")
@client_options
@click.option("--create", is_flag=True, help="Create a token.")
@click.option("--renew", is_flag=True, help="Prolong the life of a token.")
@click.option("--expire", is_flag=True, help="End a token, at once or after a period.")
@click.option("--describe", is_flag=True, help="Show tokens: of the owners, else all that the user may see.")
@click.option("--owner-principal", multiple=True, metavar="TYPE:NAME", help="The owner. [default: the user]")
@click.option("--renewer-principal", multiple=True, metavar="TYPE:NAME", help="A principal that may renew the token.")
@click.option(
    "--max-life-time-period", type=_PERIOD, metavar="MS", help="The longest life; -1: delegation.token.max.lifetime.ms."
)
@click.option(
    "--renew-time-period", type=_PERIOD, metavar="MS", help="Time to live; -1: delegation.token.expiry.time.ms."
)
@click.option("--expiry-time-period", type=_PERIOD, metavar="MS", help="Time until the end; -1: at once.")
@click.option("--hmac", metavar="BASE64", help="The HMAC of the token.")
@json_option
def delegation_tokens(bootstrap_server: str, command_config: str | None, as_json: bool, **options: Any) -> None:
    """Create, renew, expire or describe delegation tokens (kafka-delegation-tokens)."""
    action = one_action({name: options[name] for name in _OPTIONS})
    _check(action, options)
    owners, renewers = _principals(options["owner_principal"]), _principals(options["renewer_principal"])
    hmac = None if options["hmac"] is None else _decoded(options["hmac"])
    with session(bootstrap_server, command_config) as client:
        if action == "create":
            _create(client, owners, renewers, options["max_life_time_period"], as_json)
        elif action == "describe":
            _describe(client, owners, as_json)
        elif action == "renew":
            renewal = RenewDelegationTokenRequest(hmac or b"", options["renew_time_period"])
            renewed = client.call(renewal, RenewDelegationTokenResponse)
            _report_expiry("renew", renewed.error_code, renewed.expiry_timestamp_ms, as_json)
        else:
            expiration = ExpireDelegationTokenRequest(hmac or b"", options["expiry_time_period"])
            expired = client.call(expiration, ExpireDelegationTokenResponse)
            _report_expiry("expire", expired.error_code, expired.expiry_timestamp_ms, as_json)


def _check(action: str, options: Options) -> None:
    """Raise UsageError for options that the action lacks or excludes."""
    required, excluded = _OPTIONS[action]
    for name in required:
        if options[name] is None:
            raise click.UsageError(f"--{action} requires {_flag(name)}.")
    for name in excluded:
        if options[name] not in (None, ()):
            raise click.UsageError(f"{_flag(name)} cannot be used with --{action}.")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _principals(texts: Iterable[str]) -> list[_Principal]:
    return [_principal(text.strip()) for text in texts]


def _principal(text: str) -> _Principal:
    kind, colon, name = text.partition(":")
    if not colon or not kind:
        raise click.UsageError(f"expected a string in format principalType:principalName but got {text}")
    return _Principal(kind, name)


def _decoded(hmac: str) -> bytes:
    try:
        return base64.b64decode(hmac, validate=True)
    except binascii.Error as error:
        raise click.UsageError("--hmac is not base64.") from error


def _create(
    client: Client, owners: Sequence[_Principal], renewers: Sequence[_Principal], max_lifetime_ms: int, as_json: bool
) -> None:
    owner = owners[0] if owners else _Principal("", "")  # empty: the user
    request = CreateDelegationTokenRequest(
        owner.kind, owner.name, [CreatableRenewers(*each) for each in renewers], max_lifetime_ms
    )
    made = client.call(request, CreateDelegationTokenResponse)
    raise_for(made.error_code, "delegation token")
    owner = _Principal(made.principal_type, made.principal_name)
    requester = _Principal(made.token_requester_principal_type, made.token_requester_principal_name)
    times = (made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms)
    token = _Token(made.token_id, made.hmac, owner, requester, renewers, *times)
    if as_json:
        print_json(_document(token))
        return
    click.echo(f"Created delegation token with tokenId : {token.token_id}")
    _print([token])


def _describe(client: Client, owners: Sequence[_Principal], as_json: bool) -> None:
    request = DescribeDelegationTokenRequest([DescribeDelegationTokenOwner(*each) for each in owners] or None)
    response = client.call(request, DescribeDelegationTokenResponse)
    raise_for(response.error_code, "delegation tokens")
    tokens = [
        _Token(
            each.token_id,
            each.hmac,
            _Principal(each.principal_type, each.principal_name),
            _Principal(each.token_requester_principal_type, each.token_requester_principal_name),
            [_Principal(renewer.principal_type, renewer.principal_name) for renewer in each.renewers],
            each.issue_timestamp,
            each.expiry_timestamp,
            each.max_timestamp,
        )
        for each in response.tokens
    ]
    if as_json:
        print_json([_document(token) for token in tokens])
        return
    click.echo(f"Total number of tokens : {len(tokens)}")
    _print(tokens)


def _report_expiry(action: str, error_code: int, expiry_ms: int, as_json: bool) -> None:
    raise_for(error_code, "delegation token")
    if as_json:
        print_json({"expiryTimestampMs": expiry_ms})
        return
    click.echo(f"Completed {action} operation. New expiry date : {_date(expiry_ms)}")


def _print(tokens: Sequence[_Token]) -> None:
    click.echo(_ROW.format(*_HEADINGS))
    for token in tokens:
        renewers = f"[{', '.join(map(str, token.renewers))}]"
        times = (token.issued_ms, token.expiry_ms, token.max_ms)
        hmac = base64.b64encode(token.hmac).decode()
        names = (str(token.owner), str(token.requester), renewers)
        click.echo(_ROW.format(token.token_id, hmac, *names, *map(_date, times)))


def _date(time_ms: int) -> str:
    """Return the local time, in minutes. Raises CommandFailed."""
    try:
        return datetime.datetime.fromtimestamp(time_ms / 1000).strftime("%Y-%m-%dT%H:%M")
    except (OverflowError, ValueError, OSError) as error:
        raise CommandFailed(f"{time_ms} is no time in milliseconds.") from error


def _document(token: _Token) -> dict[str, object]:
    return {
        "tokenId": token.token_id,
        "hmac": base64.b64encode(token.hmac).decode(),
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(each) for each in token.renewers],
        "issueTimestampMs": token.issued_ms,
        "expiryTimestampMs": token.expiry_ms,
        "maxTimestampMs": token.max_ms,
    }
