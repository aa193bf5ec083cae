"""Known kinds of bugs of authorization, planted one at a time; see `tests/simulation/cluster/planted.py`."""

from collections.abc import Mapping
from typing import Final

from broker.api.pipeline.permission import CLUSTER_RESOURCE_NAME, Requirement
from broker.api.serving.context import RequestContext
from broker.authorizer.acl_index import AclIndex, AclVerdict
from broker.authorizer.standard import StandardAuthorizer
from broker.metadata.controller.acls import Acls
from broker.metadata.controller.result import ControllerResult
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.security_image import AccessControlEntry
from protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from tests.simulation.cluster.planted_bug import Planted
from tests.simulation.replication.campaign import Patch

_verdict = AclIndex.verdict
_on_metadata = StandardAuthorizer.on_metadata
_allows = RequestContext.allows
_changed = AclIndex.changed
_delete = Acls.delete


def _ignore_deny(
    index: AclIndex, resource_type: int, name: str, operation: int, principal: str, host: str
) -> AclVerdict:
    return _verdict(index, resource_type, name, operation, principal, host)._replace(is_denied=False)


def _ignore_hosts(
    index: AclIndex, resource_type: int, name: str, operation: int, principal: str, _host: str
) -> AclVerdict:
    return _verdict(index, resource_type, name, operation, principal, "*")


def _ignore_prefixes(
    index: AclIndex, resource_type: int, name: str, operation: int, principal: str, host: str
) -> AclVerdict:
    without = index._replace(lengths=type(index.lengths)())
    return _verdict(without, resource_type, name, operation, principal, host)


def _keep_decisions(authorizer: StandardAuthorizer, delta: MetadataDelta, image: MetadataImage) -> None:
    remembered = dict(authorizer._decisions)
    _on_metadata(authorizer, delta, image)
    authorizer._decisions.update(remembered)


def _keep_removed(index: AclIndex, _removed: list[AccessControlEntry], added: list[AccessControlEntry]) -> AclIndex:
    return _changed(index, (), added)


def _allow_all_topics(context: RequestContext, requirement: Requirement, resource_name: str) -> bool:
    return resource_name != CLUSTER_RESOURCE_NAME or _allows(context, requirement, resource_name)


def _delete_nothing(acls: Acls, request: DeleteAclsRequest) -> ControllerResult[DeleteAclsResponse]:
    return ControllerResult((), _delete(acls, request).response)


_DECISIONS: Final = frozenset({"DecisionsFollowAcls"})

PLANTED_ACLS: Final[Mapping[str, Planted]] = {
    "allowing what an entry denies": Planted((Patch(AclIndex, "verdict", _ignore_deny),), _DECISIONS, 80, first=46),
    "judging every host like any": Planted((Patch(AclIndex, "verdict", _ignore_hosts),), _DECISIONS, 40, first=12),
    "ignoring entries for prefixes": Planted((Patch(AclIndex, "verdict", _ignore_prefixes),), _DECISIONS, 20, first=2),
    "remembering decisions beyond a change of ACLs": Planted(
        (Patch(StandardAuthorizer, "on_metadata", _keep_decisions),), _DECISIONS, 20, first=2
    ),
    "keeping removed entries in the index": Planted(
        (Patch(AclIndex, "changed", _keep_removed),), _DECISIONS, 30, first=2
    ),
    "serving topics without a check": Planted(
        (Patch(RequestContext, "allows", _allow_all_topics),), frozenset({"DeniedIsRefused"}), 20, first=2
    ),
    "acknowledging deletions of ACLs that are not written": Planted(
        (Patch(Acls, "delete", _delete_nothing),), frozenset({"Liveness"}), 20
    ),
}
