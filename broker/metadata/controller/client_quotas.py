"""Altering client quotas: valid entities, valid limits, and the records of what differs (KIP-546, KIP-612).

A host name is stored as written; the brokers that enforce the quota resolve it.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import Final

from broker.metadata.controller.result import ControllerResult
from broker.metadata.controller.state import ControllerState
from broker.metadata.image.quota_image import CLIENT_ID, IP, USER, QuotaEntity, quota_entity, quota_record
from broker.metadata.image.records import VersionedRecord
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
    OpData,
)

# The largest value of each key; None for quotas with fractions, which have no largest value.
_CLIENT_KEYS: Final[Mapping[str, int | None]] = {
    "producer_byte_rate": 2**63 - 1,
    "consumer_byte_rate": 2**63 - 1,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_IP_KEYS: Final[Mapping[str, int | None]] = {"connection_creation_rate": 2**31 - 1}
_WHOLE_WITHIN: Final = 1e-6
_HOST_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?:\.(?!-)[A-Za-z0-9_-]{1,63})*\.?")
_LONGEST_HOST_NAME: Final = 253


class ClientQuotas:
    """The command AlterClientQuotas."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def alter(self, request: AlterClientQuotasRequest) -> ControllerResult[AlterClientQuotasResponse]:
        """Set and remove limits. Each entity has one result and is altered completely or not at all."""
        times_named = Counter(_named(entry) for entry in request.entries)
        records: list[VersionedRecord] = []
        answers: dict[QuotaEntity, AlterClientQuotasResponseEntryData] = {}
        for entry in request.entries:
            entity = _named(entry)
            if entity in answers:
                continue
            answer = answers[entity] = _answer(entity)
            try:
                if times_named[entity] > 1:
                    raise _invalid("the entity is named more than once in the request")
                records += self._changes(entity, entry)
            except KafkaError as error:
                answer.error_code, answer.error_message = error.code, error.message
        response = AlterClientQuotasResponse(entries=list(answers.values()))
        return ControllerResult(() if request.validate_only else records, response)

    def _changes(self, entity: QuotaEntity, entry: AlterClientQuotasRequestEntryData) -> list[VersionedRecord]:
        if len(entry.entity) != len(entity):
            raise _invalid("an entity type is named twice in the entity")
        keys = _keys_of(entity)
        _check_operations(entry.ops, keys)
        return list(self._records(entity, entry.ops))

    def _records(self, entity: QuotaEntity, operations: Iterable[OpData]) -> Iterator[VersionedRecord]:
        present = self._state.image.client_quotas.of(entity)
        for operation in operations:
            wanted = None if operation.remove else operation.value
            if present.get(operation.key) != wanted:
                yield quota_record(entity, operation.key, wanted)


def _named(entry: AlterClientQuotasRequestEntryData) -> QuotaEntity:
    return quota_entity({part.entity_type: part.entity_name for part in entry.entity})


def _answer(entity: QuotaEntity) -> AlterClientQuotasResponseEntryData:
    parts = [AlterClientQuotasResponseEntityData(kind, name) for kind, name in entity]
    return AlterClientQuotasResponseEntryData(error_message=None, entity=parts)


def _keys_of(entity: QuotaEntity) -> Mapping[str, int | None]:
    """Return the quota keys of an entity with their largest values. Raises KafkaError for an invalid entity."""
    if not entity:
        raise _invalid("the entity is empty")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f'entity type "{kind}" is unknown')
        if name == "":
            raise _invalid(f"the name of the {kind} is empty")
    parts = dict(entity)
    if IP not in parts:
        return _CLIENT_KEYS
    if len(parts) > 1:
        raise _invalid("an ip entity cannot be combined with a user or a client id")
    if parts[IP] is not None and not _is_address_or_host(parts[IP] or ""):
        raise _invalid(f'"{parts[IP]}" is neither an IP address nor a host name')
    return _IP_KEYS


def _check_operations(operations: Iterable[OpData], keys: Mapping[str, int | None]) -> None:
    seen = set()
    for operation in operations:
        if operation.key in seen:
            raise _invalid(f"{operation.key} is named twice for the entity")
        seen.add(operation.key)
        if not operation.remove:
            _check_limit(operation.key, operation.value, keys)


def _check_limit(key: str, value: float, keys: Mapping[str, int | None]) -> None:
    if key not in keys:
        raise _invalid(f"the entity has no quota {key}")
    if not value > 0 or math.isinf(value):
        raise _invalid(f"{key} must be a number larger than 0")
    largest = keys[key]
    if largest is None:
        return
    if value > largest:
        raise _invalid(f"{value} is too large for {key}")
    if value % 1.0 > _WHOLE_WITHIN:
        raise _invalid(f"{key} must be a whole number")


def _is_address_or_host(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return len(name) <= _LONGEST_HOST_NAME and _HOST_NAME.fullmatch(name) is not None
    return True


def _invalid(sentence: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, sentence)
