"""Creation and deletion of access control entries (KIP-11, KIP-290). Authorization itself is elsewhere."""

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
_OPERATIONS: Final = range(2, 16)  # all, read, …, two-phase commit
_PERMISSIONS: Final = (2, 3)  # deny, allow


class Acls:
    """The commands CreateAcls and DeleteAcls."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def create(self, request: CreateAclsRequest) -> ControllerResult[CreateAclsResponse]:
        """Add entries, with one result each. An existing entry is a success and not written again."""
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
        """Remove the entries that each filter matches. Raises KafkaError POLICY_VIOLATION for too many records."""
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
                ErrorCode.POLICY_VIOLATION,
                f"the filters match more than {MAX_RECORDS_PER_BATCH} entries; delete them with narrower filters",
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
    """Return the entry that a request creates. Raises KafkaError INVALID_REQUEST."""
    faults = {
        f"resource type {asked.resource_type} is unknown": asked.resource_type not in _RESOURCE_TYPES,
        f"an entry cannot have pattern type {asked.resource_pattern_type}": asked.resource_pattern_type
        not in (AclPattern.LITERAL, AclPattern.PREFIXED),
        f"operation {asked.operation} is unknown": asked.operation not in _OPERATIONS,
        f"permission type {asked.permission_type} is neither ALLOW nor DENY": asked.permission_type not in _PERMISSIONS,
        f'a cluster resource must be named "{CLUSTER_NAME}"': asked.resource_type == _CLUSTER
        and asked.resource_name != CLUSTER_NAME,
        "the resource name is empty": not asked.resource_name,
        f'principal "{asked.principal}" does not have the form type:name': not _is_principal(asked.principal),
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
    """Return the checked filter. Raises KafkaError INVALID_REQUEST."""
    return AclFilter.checked(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )
