"""SCRAM credentials: the keys stored for a password (KIP-554, RFC 5802).

The client sends the salted password. Only what a server needs to verify a login is stored; no login is possible with
it.
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
    """The stored keys of a password."""

    stored_key: bytes
    server_key: bytes


def scram_keys(mechanism: ScramMechanism, salted_password: bytes) -> ScramKeys:
    """Return the keys of RFC 5802, section 3, from the SaltedPassword."""
    name = _HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return ScramKeys(hashlib.new(name, client_key).digest(), hmac.digest(salted_password, b"Server Key", name))


class ScramCredentials:
    """The command AlterUserScramCredentials."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def alter(self, request: AlterUserScramCredentialsRequest) -> ControllerResult[AlterUserScramCredentialsResponse]:
        """Store and delete credentials. Each user has one result and may be named once, in any mechanism."""
        records: dict[str, VersionedRecord] = {}
        errors: dict[str, KafkaError] = {}
        for change in _in_order(request):
            if change.name in errors:
                continue
            try:
                if records.pop(change.name, None) is not None:
                    raise KafkaError(
                        ErrorCode.DUPLICATE_RESOURCE, "a request can alter the credentials of a user only once"
                    )
                records[change.name] = self._record(change)
            except KafkaError as error:
                errors[change.name] = error
        results = [AlterUserScramCredentialsResult(user, ErrorCode.NONE, None) for user in records]
        results += [AlterUserScramCredentialsResult(user, e.code, e.message) for user, e in errors.items()]
        return ControllerResult(list(records.values()), AlterUserScramCredentialsResponse(results=results))

    def _record(self, change: ScramCredentialDeletion | ScramCredentialUpsertion) -> VersionedRecord:
        if not self._state.version.supports_scram:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "the finalized metadata.version does not support SCRAM credentials"
            )
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
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the user name is empty")
    if change.mechanism not in tuple(ScramMechanism):
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"SCRAM mechanism {change.mechanism} is unknown")
    return ScramMechanism(change.mechanism)


def _credential(requested: ScramCredentialUpsertion, mechanism: ScramMechanism) -> VersionedRecord:
    if not MIN_ITERATIONS <= requested.iterations <= MAX_ITERATIONS:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{requested.iterations} iterations are not between {MIN_ITERATIONS} and {MAX_ITERATIONS}",
        )
    if not requested.salted_password:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the salted password is empty")
    keys = scram_keys(mechanism, requested.salted_password)
    record = UserScramCredentialRecord(
        name=requested.name,
        mechanism=mechanism,
        salt=requested.salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=requested.iterations,
    )
    return VersionedRecord(record, 0)
