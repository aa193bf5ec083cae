"""DeleteAcls (key 31), versions 1-3: remove the access control entries that filters mean (KIP-140, KIP-290)."""

from collections.abc import Awaitable

from broker.api.serving.acl_support import check_authorizer
from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse


class DeleteAclsHandler:
    """Answers DeleteAcls."""

    def __init__(self, controller: ControllerGateway, *, has_authorizer: bool) -> None:
        self._controller = controller
        self._has_authorizer = has_authorizer

    def __call__(self, request: DeleteAclsRequest, context: RequestContext) -> Awaitable[DeleteAclsResponse]:
        check_authorizer(self._has_authorizer)
        return self._controller.submit(lambda controller, _now: controller.delete_acls(request))
