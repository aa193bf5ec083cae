"""Creating and deleting access control lists' entries (KIP-11, KIP-290). Nobody's requests are judged by them here."""

from collections.abc import Callable
from typing import Final

from broker.metadata.controller.acl_filter import AclFilter, AclPattern
from broker.metadata.controller.result import MAX_RECORDS_PER_BATCH, ControllerResult
from broker.metadata.controller.state import ControllerState
from broker.metadata.image.records import VersionedRecord
from broker.metadata.image.security_image import AccessControlEntry
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from protocol.messages.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from protocol.primitives import Uuid

CLUSTER_NAME: Final = "kafka-cluster"
_CLUSTER: Final = 4
_RESOURCE_TYPES: Final = range(2, 8)  # topic, group, cluster, transactional id, delegation token, user
_OPERATIONS: Final = range(2, 16)  # all, read … two-phase commit
_PERMISSIONS: Final = (2, 3)  # deny, allow


class Acls:
    """The controller's part for CreateAcls and DeleteAcls."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def create(self, request: CreateAclsRequest) -> ControllerResult[CreateAclsResponse]:
        """Add entries, one answer each; what exists already is a success and not written again."""
        present = set(self._state.image.acls.entries.values())
        records: list[VersionedRecord] = []
        response = CreateAclsResponse()
        for creation in request.creations:
            try:
                entry = _checked(creation)
            except KafkaError as error:
                response.results.append(AclCreationResult(error.code, error.message))
                continue
            response.results.append(AclCreationResult(ErrorCode.NONE, None))
            if entry not in present:
                present.add(entry)
                records.append(VersionedRecord(AccessControlEntryRecord(self._new_id(), *entry), 0))
        return ControllerResult(records, response)

    def delete(self, request: DeleteAclsRequest) -> ControllerResult[DeleteAclsResponse]:
        """Remove the entries that filters match, one answer each. Raises KafkaError POLICY_VIOLATION for too many."""
        removed: dict[Uuid, None] = {}
        response = DeleteAclsResponse()
        for asked in request.filters:
            try:
                matches = _filter(asked).matches
            except KafkaError as error:
                response.filter_results.append(DeleteAclsFilterResult(error.code, error.message))
                continue
            response.filter_results.append(self._delete_matching(matches, removed))
        records = [VersionedRecord(RemoveAccessControlEntryRecord(id=each), 0) for each in removed]
        if len(records) > MAX_RECORDS_PER_BATCH:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"more than {MAX_RECORDS_PER_BATCH} entries at once cannot be removed"
            )
        return ControllerResult(records, response)

    def _delete_matching(
        self, matches: Callable[[AccessControlEntry], bool], removed: dict[Uuid, None]
    ) -> DeleteAclsFilterResult:
        result = DeleteAclsFilterResult(error_message=None)
        for entry_id, entry in sorted(self._state.image.acls.entries.items()):
            if matches(entry):
                removed[entry_id] = None
                result.matching_acls.append(DeleteAclsMatchingAcl(ErrorCode.NONE, None, *entry))
        return result

    def _new_id(self) -> Uuid:
        entries = self._state.image.acls.entries
        return next(drawn for drawn in iter(self._state.new_id, None) if drawn not in entries)


def _checked(asked: AclCreation) -> AccessControlEntry:
    """Raises KafkaError INVALID_REQUEST."""
    faults = {
        f"{asked.resource_type} is no type of resource": asked.resource_type not in _RESOURCE_TYPES,
        f"{asked.resource_pattern_type} is no type of pattern for an entry": asked.resource_pattern_type
        not in (AclPattern.LITERAL, AclPattern.PREFIXED),
        f"{asked.operation} is no operation": asked.operation not in _OPERATIONS,
        f"{asked.permission_type} neither allows nor denies": asked.permission_type not in _PERMISSIONS,
        f"the only cluster is {CLUSTER_NAME}": asked.resource_type == _CLUSTER and asked.resource_name != CLUSTER_NAME,
        "the resource's name is empty": not asked.resource_name,
        f"'{asked.principal}' is no principal, which is a type, a colon and a name": not _is_principal(asked.principal),
    }
    for sentence, is_so in faults.items():
        if is_so:
            raise KafkaError(ErrorCode.INVALID_REQUEST, sentence)
    return AccessControlEntry(
        asked.resource_type,
        asked.resource_name,
        asked.resource_pattern_type,
        asked.principal,
        asked.host,
        asked.operation,
        asked.permission_type,
    )


def _is_principal(text: str) -> bool:
    kind, colon, name = text.partition(":")
    return bool(kind and colon and name)


def _filter(asked: DeleteAclsFilter) -> AclFilter:
    """Raises KafkaError INVALID_REQUEST."""
    return AclFilter.checked(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )
