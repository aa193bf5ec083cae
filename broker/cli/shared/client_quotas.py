"""Quotas of users, client ids and addresses, as `ottla configs` alters and prints them (kafka-configs).

A description of users has their SCRAM credentials, too.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import click

from broker.cli.shared.failure import CommandFailed
from broker.cli.shared.output import print_json
from broker.cli.shared.scram_credentials import describe_credentials
from broker.client import Client, raise_for
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    OpData,
)
from protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntryData,
)

ENTITY_TYPES: Final = {"users": "user", "clients": "client-id", "ips": "ip"}
"""The types on the wire by `--entity-type`."""
_PRINTED: Final = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2


class QuotaSelection(NamedTuple):
    """The entities that options select: types of `--entity-type`, and names in the same order.

    An empty name is the default entity of its type; a missing one means all entities of the type.
    """

    kinds: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def components(self) -> list[ComponentData]:
        """The filter of a description."""
        names = (*self.names, *[None] * (len(self.kinds) - len(self.names)))
        return [_component(ENTITY_TYPES[kind], name) for kind, name in zip(self.kinds, names, strict=True)]


def check_selection(selection: QuotaSelection) -> None:
    """Raise UsageError for types that do not go together."""
    kinds = selection.kinds
    if len(set(kinds)) != len(kinds) or ("ips" in kinds and len(kinds) > 1):
        raise click.UsageError("Only users and clients can be named together.")
    if len(selection.names) > len(kinds):
        raise click.UsageError("More entity names specified than entity types")


def alter_quotas(
    client: Client, selection: QuotaSelection, additions: Mapping[str, str], deletions: Sequence[str]
) -> None:
    """Set and remove quotas of one entity. Raises CommandFailed, KafkaError."""
    operations = [OpData(key, _rate(key, value), False) for key, value in additions.items()]
    if deletions:
        present = {value.key for entry in _described(client, selection) for value in entry.values}
        if missing := [key for key in deletions if key not in present]:
            raise CommandFailed(f"Invalid config(s): {','.join(missing)}")
        operations += [OpData(key, 0.0, True) for key in deletions]
    parts = [
        AlterClientQuotasRequestEntityData(ENTITY_TYPES[kind], name or None)
        for kind, name in zip(selection.kinds, selection.names, strict=True)
    ]
    request = AlterClientQuotasRequest([AlterClientQuotasRequestEntryData(parts, operations)])
    for entry in client.any().call(request, AlterClientQuotasResponse).entries:
        raise_for(entry.error_code, "client quotas", entry.error_message)
    kind, name = selection.kinds[0], selection.names[0]
    if name:
        click.echo(f"Completed updating config for {kind[:-1]} {name}.")
    else:
        click.echo(f"Completed updating default config for {kind} in the cluster.")


def describe_quotas(client: Client, selection: QuotaSelection, *, as_json: bool) -> None:
    """Print the quotas of the selected entities, and the SCRAM credentials of selected users."""
    entries = _described(client, selection)
    is_of_users = selection.kinds == ("users",) and "" not in selection.names
    credentials = describe_credentials(client, selection.names) if is_of_users else {}
    if as_json:
        print_json(_documents(entries, credentials))
        return
    for entry in entries:
        names = {part.entity_type: part.entity_name for part in entry.entity}
        entity = ", ".join(_spoken(kind, names[kind]) for kind in _PRINTED if kind in names)
        click.echo(f"Quota configs for {entity} are {', '.join(f'{v.key}={v.value}' for v in entry.values)}")
    for user, iterations in credentials.items():
        written = ", ".join(f"{mechanism}=iterations={count}" for mechanism, count in iterations.items())
        click.echo(f"SCRAM credential configs for user-principal '{user}' are {written}")


def _described(client: Client, selection: QuotaSelection) -> list[EntryData]:
    request = DescribeClientQuotasRequest(selection.components, strict=True)
    response = client.call(request, DescribeClientQuotasResponse)
    raise_for(response.error_code, "client quotas", response.error_message)
    return sorted(response.entries or [], key=lambda entry: [part.entity_name or "" for part in entry.entity])


def _component(kind: str, name: str | None) -> ComponentData:
    if name is None:
        return ComponentData(kind, _SPECIFIED, None)
    return ComponentData(kind, _EXACT, name) if name else ComponentData(kind, _DEFAULT, None)


def _rate(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise CommandFailed(f"Cannot parse quota configuration value for {key}: {text}") from error


def _spoken(kind: str, name: str | None) -> str:
    return f"the default {_PRINTED[kind]}" if name is None else f"{_PRINTED[kind]} '{name}'"


def _documents(entries: Sequence[EntryData], credentials: Mapping[str, Mapping[str, int]]) -> list[dict[str, object]]:
    """Return a document for each entity that has quotas or credentials."""
    documents: list[dict[str, object]] = [
        {
            "entity": {part.entity_type: part.entity_name for part in entry.entity},
            "quotas": {value.key: value.value for value in entry.values},
        }
        for entry in entries
    ]
    for user, iterations in credentials.items():
        document = next((each for each in documents if each["entity"] == {"user": user}), None)
        if document is None:
            document = {"entity": {"user": user}, "quotas": {}}
            documents.append(document)
        document["scramCredentials"] = {name: {"iterations": count} for name, count in iterations.items()}
    return documents
