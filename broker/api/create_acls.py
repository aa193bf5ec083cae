"""CreateAcls (key 30), versions 1-3: add access control entries, each with its answer (KIP-140, KIP-290)."""

from collections.abc import Awaitable

from broker.api.serving.acl_support import check_authorizer
from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse


class CreateAclsHandler:
    """Answers CreateAcls."""

    def __init__(self, controller: ControllerGateway, *, has_authorizer: bool) -> None:
        self._controller = controller
        self._has_authorizer = has_authorizer

    def __call__(self, request: CreateAclsRequest, context: RequestContext) -> Awaitable[CreateAclsResponse]:
        check_authorizer(self._has_authorizer)
        return self._controller.submit(lambda controller, _now: controller.create_acls(request))
