"""SCRAM credentials: what a client sends of a password, and the keys that are kept of it (KIP-554, RFC 5802).

The client sends the salted password; only what a server needs to check a login is stored, from which no one can log in.
"""

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final, NamedTuple

from broker.metadata.controller.result import ControllerResult
from broker.metadata.controller.state import ControllerState
from broker.metadata.image.records import VersionedRecord
from broker.metadata.image.security_image import ScramMechanism
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.messages.metadata_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord

MIN_ITERATIONS: Final = 4_096
MAX_ITERATIONS: Final = 16_384
_HASHES: Final = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}


class ScramKeys(NamedTuple):
    """What a server keeps of a password."""

    stored_key: bytes
    server_key: bytes


def scram_keys(mechanism: ScramMechanism, salted_password: bytes) -> ScramKeys:
    """The keys of RFC 5802, section 3, from its SaltedPassword."""
    name = _HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return ScramKeys(hashlib.new(name, client_key).digest(), hmac.digest(salted_password, b"Server Key", name))


class ScramCredentials:
    """The controller's part for AlterUserScramCredentials."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def alter(self, request: AlterUserScramCredentialsRequest) -> ControllerResult[AlterUserScramCredentialsResponse]:
        """Store and delete credentials. A user has one answer, and can be named once, whichever the mechanism."""
        records: dict[str, VersionedRecord] = {}
        errors: dict[str, KafkaError] = {}
        for change in _in_order(request):
            if change.name in errors:
                continue
            try:
                if records.pop(change.name, None) is not None:
                    raise KafkaError(
                        ErrorCode.DUPLICATE_RESOURCE, "a user's credentials can be altered once in a request"
                    )
                records[change.name] = self._record(change)
            except KafkaError as error:
                errors[change.name] = error
        results = [AlterUserScramCredentialsResult(user, ErrorCode.NONE, None) for user in records]
        results += [AlterUserScramCredentialsResult(user, e.code, e.message) for user, e in errors.items()]
        return ControllerResult(list(records.values()), AlterUserScramCredentialsResponse(results=results))

    def _record(self, change: ScramCredentialDeletion | ScramCredentialUpsertion) -> VersionedRecord:
        if not self._state.version.supports_scram:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the cluster's metadata.version knows no SCRAM credentials")
        mechanism = _mechanism(change)
        if isinstance(change, ScramCredentialDeletion):
            if (mechanism, change.name) not in self._state.image.scram.credentials:
                raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "the user has no such credential")
            return VersionedRecord(RemoveUserScramCredentialRecord(name=change.name, mechanism=mechanism), 0)
        return _credential(change, mechanism)


def _in_order(
    request: AlterUserScramCredentialsRequest,
) -> Iterable[ScramCredentialDeletion | ScramCredentialUpsertion]:
    yield from request.deletions
    yield from request.upsertions


def _mechanism(change: ScramCredentialDeletion | ScramCredentialUpsertion) -> ScramMechanism:
    if not change.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the user's name is empty")
    if change.mechanism not in tuple(ScramMechanism):
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"{change.mechanism} is no SCRAM mechanism")
    return ScramMechanism(change.mechanism)


def _credential(asked: ScramCredentialUpsertion, mechanism: ScramMechanism) -> VersionedRecord:
    if not MIN_ITERATIONS <= asked.iterations <= MAX_ITERATIONS:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"there must be {MIN_ITERATIONS} to {MAX_ITERATIONS} iterations, not {asked.iterations}",
        )
    if not asked.salted_password:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the salted password is empty")
    keys = scram_keys(mechanism, asked.salted_password)
    record = UserScramCredentialRecord(
        name=asked.name,
        mechanism=mechanism,
        salt=asked.salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=asked.iterations,
    )
    return VersionedRecord(record, 0)
