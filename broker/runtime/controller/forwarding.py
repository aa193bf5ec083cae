"""Forwarding of client requests to the active controller, in an envelope (KIP-590).

A client needs neither the address of the controller nor a route to it. The envelope carries the client's request with
its header, principal and address; the response is forwarded as the controller encoded it.
"""

import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from broker.logs import EventLog
from broker.net.peer import ApiVersionRange, VersionMismatch
from broker.net.request import CloseConnection, ConnectionInfo
from broker.runtime.controller.controller_router import ControllerRouter, ControllerUnavailable, RemoteController
from broker.runtime.controller.principals import serialize_principal
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.framing import SIZE_BYTES
from protocol.headers import RequestHeader, decode_response, encode_request
from protocol.messages import Message
from protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse

M = TypeVar("M", bound=Message)

FORWARDING_TIMEOUT_MS: Final = 60_000
"""How long the active controller is searched for, as in Kafka."""

ATTEMPT_TIMEOUT_MS: Final = 30_000
"""How long one controller may take to respond (Kafka's controller.socket.timeout.ms)."""

_log: Final = EventLog("broker.forwarding")


class Forwarder:
    """Executes client requests on the active controller, in this process or on another node."""

    def __init__(self, router: ControllerRouter, *, timeout_ms: float = FORWARDING_TIMEOUT_MS) -> None:
        self._router = router
        self._timeout_ms = timeout_ms

    def controller_versions(self) -> Mapping[int, ApiVersionRange] | None:
        """Return the controller's API versions, which limit those advertised to clients; see `ControllerRouter`."""
        return self._router.controller_versions()

    async def forward(
        self,
        request: Message,
        header: RequestHeader,
        client: ConnectionInfo,
        response_type: type[M],
        here: Callable[[], Awaitable[M]],
    ) -> M:
        """Return the response of the active controller; `here` executes the request in this process.

        Raises KafkaError (REQUEST_TIMED_OUT without a controller, UNKNOWN_SERVER_ERROR for a rejected envelope, errors
        of `here`), and CloseConnection if the controller does not serve this version of the request.
        """
        envelope = _envelope(request, header, client)

        async def there(remote: RemoteController) -> M:
            return _unpacked(await remote.send(envelope, EnvelopeResponse), header, response_type)

        try:
            return await self._router.run(here, there, within_ms=self._timeout_ms, attempt_ms=ATTEMPT_TIMEOUT_MS)
        except ControllerUnavailable as error:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error
        except VersionMismatch as error:
            raise CloseConnection(f"the controller does not serve the forwarded request: {error}") from error


def _envelope(request: Message, header: RequestHeader, client: ConnectionInfo) -> EnvelopeRequest:
    frame = b"".join(encode_request(request, header.api_version, header.correlation_id, header.client_id))
    address = ipaddress.ip_address(client.peer_host.partition("%")[0])
    return EnvelopeRequest(
        frame[SIZE_BYTES:],
        serialize_principal(client.principal, is_token=client.is_token_authenticated),
        address.packed,
    )


def _unpacked(envelope: EnvelopeResponse, header: RequestHeader, response_type: type[M]) -> M:
    match envelope.error_code:
        case ErrorCode.NONE:
            return _decoded(envelope, header, response_type)
        case ErrorCode.NOT_CONTROLLER:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        case ErrorCode.UNSUPPORTED_VERSION:
            raise CloseConnection(
                f"the controller does not serve API key {header.api_key} version {header.api_version}"
            )
        case code:
            _log.warning("The controller rejected a forwarded request", api_key=header.api_key, error_code=code)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _decoded(envelope: EnvelopeResponse, header: RequestHeader, response_type: type[M]) -> M:
    try:
        correlation_id, response = decode_response(response_type, header.api_version, envelope.response_data or b"")
        if correlation_id != header.correlation_id:
            raise DecodeError(f"correlation id {correlation_id} does not match request {header.correlation_id}")
    except DecodeError as error:
        _log.warning("The response to a forwarded request does not parse", reason=str(error))
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
    return response
