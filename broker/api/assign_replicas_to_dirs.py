"""AssignReplicasToDirs (key 73), version 0: a broker says in which directory each replica lies (KIP-858)."""

from collections.abc import Awaitable

from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse


class AssignReplicasToDirsHandler:
    """Answers AssignReplicasToDirs at the controller."""

    def __init__(self, controller: ControllerGateway) -> None:
        self._controller = controller

    def __call__(
        self, request: AssignReplicasToDirsRequest, context: RequestContext
    ) -> Awaitable[AssignReplicasToDirsResponse]:
        return self._controller.submit(lambda controller, _now: controller.assign_directories(request))
