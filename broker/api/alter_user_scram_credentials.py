"""AlterUserScramCredentials (key 51), version 0: store and delete users' passwords, salted already (KIP-554)."""

from collections.abc import Awaitable

from broker.api.serving.context import RequestContext
from broker.api.serving.controller_gateway import ControllerGateway
from protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)


class AlterUserScramCredentialsHandler:
    """Answers AlterUserScramCredentials."""

    def __init__(self, controller: ControllerGateway) -> None:
        self._controller = controller

    def __call__(
        self, request: AlterUserScramCredentialsRequest, context: RequestContext
    ) -> Awaitable[AlterUserScramCredentialsResponse]:
        return self._controller.submit(lambda controller, _now: controller.alter_scram_credentials(request))
