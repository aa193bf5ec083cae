"""ACLs, SCRAM credentials and delegation tokens, as records state them."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple, TypeVar

from immutables import Map

from broker.metadata.image.metadata_version import MetadataVersion
from broker.metadata.image.records import InvalidMetadata, VersionedRecord
from protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from protocol.primitives import Uuid

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class AccessControlEntry(NamedTuple):
    """One ACL; the numbers are those of the ACL APIs."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class AclsImage(NamedTuple):
    """Entries by id, and the same by resource name, so that filters for a name scan nothing."""

    entries: Map[Uuid, AccessControlEntry] = Map()
    by_name: Map[str, Map[Uuid, AccessControlEntry]] = Map()

    def named(self, names: Iterable[str]) -> Iterator[tuple[Uuid, AccessControlEntry]]:
        """Yield (id, entry) of the entries for these resource names."""
        for name in names:
            yield from self.by_name.get(name, Map()).items()

    def write(self) -> Iterator[VersionedRecord]:
        for entry_id, entry in sorted(self.entries.items()):
            yield VersionedRecord(AccessControlEntryRecord(entry_id, *entry), 0)


class AclsDelta:
    """Changes in record order, which authorizers depend on: ids with the new entry or None after removal."""

    def __init__(self, image: AclsImage) -> None:
        self._image = image
        self.changes: dict[Uuid, AccessControlEntry | None] = {}

    def add(self, record: AccessControlEntryRecord) -> None:
        self.changes[record.id] = AccessControlEntry(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )

    def remove(self, record: RemoveAccessControlEntryRecord) -> None:
        if self.changes.get(record.id) is None and (record.id in self.changes or record.id not in self._image.entries):
            raise InvalidMetadata("a record removes an ACL that does not exist")
        self.changes[record.id] = None

    def apply(self) -> AclsImage:
        entries, by_name = self._image.entries, self._image.by_name.mutate()
        for entry_id, entry in self.changes.items():
            former = entries.get(entry_id)
            if former is not None:
                others = by_name[former.resource_name].delete(entry_id)
                if others:
                    by_name[former.resource_name] = others
                else:
                    del by_name[former.resource_name]
            if entry is not None:
                by_name[entry.resource_name] = by_name.get(entry.resource_name, Map()).set(entry_id, entry)
        return AclsImage(_apply(entries, self.changes), by_name.finish())


class ScramMechanism(IntEnum):
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


class ScramCredential(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class ScramImage(NamedTuple):
    """Credentials by (mechanism, user)."""

    credentials: Map[tuple[int, str], ScramCredential] = Map()

    def write(self, version: MetadataVersion) -> Iterator[VersionedRecord]:
        if not version.supports_scram:
            return
        for (mechanism, user), credential in sorted(self.credentials.items()):
            yield VersionedRecord(
                UserScramCredentialRecord(
                    name=user,
                    mechanism=mechanism,
                    salt=credential.salt,
                    stored_key=credential.stored_key,
                    server_key=credential.server_key,
                    iterations=credential.iterations,
                ),
                0,
            )


class ScramDelta:
    """Changes of credentials: (mechanism, user) with the new credential or None after removal."""

    def __init__(self, image: ScramImage) -> None:
        self._image = image
        self.changes: dict[tuple[int, str], ScramCredential | None] = {}

    def add(self, record: UserScramCredentialRecord) -> None:
        credential = ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)
        self.changes[record.mechanism, record.name] = credential

    def remove(self, record: RemoveUserScramCredentialRecord) -> None:
        self.changes[record.mechanism, record.name] = None

    def apply(self) -> ScramImage:
        return ScramImage(_apply(self._image.credentials, self.changes))


class DelegationToken(NamedTuple):
    """The public part of a token; its HMAC derives from the id and the cluster's secret."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int

    def to_record(self, token_id: str) -> VersionedRecord:
        record = DelegationTokenRecord(
            owner=self.owner,
            requester=self.requester,
            renewers=list(self.renewers),
            issue_timestamp=self.issue_timestamp_ms,
            max_timestamp=self.max_timestamp_ms,
            expiration_timestamp=self.expiration_timestamp_ms,
            token_id=token_id,
        )
        return VersionedRecord(record, 0)


class DelegationTokensImage(NamedTuple):
    """Tokens by id."""

    tokens: Map[str, DelegationToken] = Map()

    def write(self, version: MetadataVersion) -> Iterator[VersionedRecord]:
        if not version.supports_delegation_tokens:
            return
        for token_id, token in sorted(self.tokens.items()):
            yield token.to_record(token_id)


class DelegationTokensDelta:
    """Changes of tokens: ids with the new token or None after removal."""

    def __init__(self, image: DelegationTokensImage) -> None:
        self._image = image
        self.changes: dict[str, DelegationToken | None] = {}

    def add(self, record: DelegationTokenRecord) -> None:
        self.changes[record.token_id] = DelegationToken(
            record.owner,
            record.requester,
            tuple(record.renewers),
            record.issue_timestamp,
            record.max_timestamp,
            record.expiration_timestamp,
        )

    def remove(self, record: RemoveDelegationTokenRecord) -> None:
        self.changes[record.token_id] = None

    def apply(self) -> DelegationTokensImage:
        return DelegationTokensImage(_apply(self._image.tokens, self.changes))


def _apply(image: Map[K, V], changes: Mapping[K, V | None]) -> Map[K, V]:
    mutation = image.mutate()
    for key, value in changes.items():
        if value is None:
            mutation.pop(key, None)
        else:
            mutation[key] = value
    return mutation.finish()
