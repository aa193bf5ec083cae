"""Creation and deletion of access control entries (KIP-11, KIP-290). Authorization itself is elsewhere."""

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
        acls, created = self._state.image.acls, set[AccessControlEntry]()
        records: list[VersionedRecord] = []
        response = CreateAclsResponse()
        for creation in request.creations:
            try:
                entry = _checked(creation)
            except KafkaError as error:
                response.results.append(AclCreationResult(error.code, error.message))
                continue
            response.results.append(AclCreationResult(ErrorCode.NONE, ""))
            if entry not in created and all(entry != each for _, each in acls.named((entry.resource_name,))):
                created.add(entry)
                records.append(VersionedRecord(AccessControlEntryRecord(self._new_id(), *entry), 0))
        return ControllerResult(records, response)

    def delete(self, request: DeleteAclsRequest) -> ControllerResult[DeleteAclsResponse]:
        """Remove the entries that each filter matches. Raises KafkaError POLICY_VIOLATION for too many records."""
        removed: dict[Uuid, None] = {}
        response = DeleteAclsResponse()
        for requested in request.filters:
            try:
                wanted = _filter(requested)
            except KafkaError as error:
                response.filter_results.append(DeleteAclsFilterResult(error.code, error.message))
                continue
            response.filter_results.append(self._delete_matching(wanted, removed))
        records = [VersionedRecord(RemoveAccessControlEntryRecord(id=each), 0) for each in removed]
        if len(records) > MAX_RECORDS_PER_BATCH:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"the filters match more than {MAX_RECORDS_PER_BATCH} entries; delete them with narrower filters",
            )
        return ControllerResult(records, response)

    def _delete_matching(self, wanted: AclFilter, removed: dict[Uuid, None]) -> DeleteAclsFilterResult:
        result = DeleteAclsFilterResult(error_message=None)
        for entry_id, entry in sorted(wanted.find(self._state.image.acls)):
            removed[entry_id] = None
            result.matching_acls.append(DeleteAclsMatchingAcl(ErrorCode.NONE, None, *entry))
        return result

    def _new_id(self) -> Uuid:
        entries = self._state.image.acls.entries
        return next(drawn for drawn in iter(self._state.new_id, None) if drawn not in entries)


def _checked(requested: AclCreation) -> AccessControlEntry:
    """Return the entry that a request creates. Raises KafkaError INVALID_REQUEST."""
    faults = {
        f"resource type {requested.resource_type} is unknown": requested.resource_type not in _RESOURCE_TYPES,
        f"an entry cannot have pattern type {requested.resource_pattern_type}": requested.resource_pattern_type
        not in (AclPattern.LITERAL, AclPattern.PREFIXED),
        f"operation {requested.operation} is unknown": requested.operation not in _OPERATIONS,
        f"permission type {requested.permission_type} is neither ALLOW nor DENY": requested.permission_type
        not in _PERMISSIONS,
        f'a cluster resource must be named "{CLUSTER_NAME}"': requested.resource_type == _CLUSTER
        and requested.resource_name != CLUSTER_NAME,
        "the resource name is empty": not requested.resource_name,
        f'principal "{requested.principal}" does not have the form type:name': not _is_principal(requested.principal),
    }
    for sentence, is_so in faults.items():
        if is_so:
            raise KafkaError(ErrorCode.INVALID_REQUEST, sentence)
    return AccessControlEntry(
        requested.resource_type,
        requested.resource_name,
        requested.resource_pattern_type,
        requested.principal,
        requested.host,
        requested.operation,
        requested.permission_type,
    )


def _is_principal(text: str) -> bool:
    kind, colon, name = text.partition(":")
    return bool(kind and colon and name)


def _filter(requested: DeleteAclsFilter) -> AclFilter:
    """Return the checked filter. Raises KafkaError INVALID_REQUEST."""
    return AclFilter.checked(
        requested.resource_type_filter,
        requested.resource_name_filter,
        requested.pattern_type_filter,
        requested.principal_filter,
        requested.host_filter,
        requested.operation,
        requested.permission_type,
    )
