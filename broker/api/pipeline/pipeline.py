"""The stages of one connection, in order: authenticate, authorize, dispatch.

A pipeline is resolved once per connection. A stage that would change nothing is left out: on a PLAINTEXT listener
without authorizer the pipeline is the dispatcher itself, and requests cost no further call. Quotas are applied at the
end of a request (`quota.py`): the dispatcher calls them with each response, because the throttle time is part of it.
"""

from collections.abc import Mapping

from broker.api.pipeline.authentication import INITIAL_STATES, AuthenticationState, ConnectionAuthentication
from broker.api.pipeline.authorization import AllowAll, AuthorizationStage
from broker.api.pipeline.sasl import SaslServices, SaslStage
from broker.api.serving.dispatch import Dispatcher
from broker.net.request import ConnectionInfo, Dispatch


class RequestPipelines:
    """Builds the pipelines of a server's connections."""

    def __init__(self, dispatcher: Dispatcher, sasl: Mapping[str, SaslServices] | None = None) -> None:
        """Take the SASL side of listeners by name; listeners without SASL need none."""
        self._sasl = sasl or {}
        shared: Dispatch = dispatcher
        authorizer = dispatcher.authorizer
        if not isinstance(authorizer, AllowAll | None):
            shared = AuthorizationStage(shared, authorizer, dispatcher.permissions, dispatcher.refuse, dispatcher.audit)
        self._shared = shared

    def open(self, connection: ConnectionInfo) -> Dispatch:
        """Return the pipeline of a new connection."""
        state = INITIAL_STATES[connection.security_protocol]
        if state is AuthenticationState.AUTHENTICATED:
            return self._shared
        connection.is_authenticated = False
        services = self._sasl[connection.listener]
        return SaslStage(self._shared, ConnectionAuthentication(state), connection, services)
