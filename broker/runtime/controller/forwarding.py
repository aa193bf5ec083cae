"""Requests of clients that only the active controller can answer, taken there in an envelope (KIP-590).

A client need not know where the controller is, nor be able to reach it. The envelope carries the client's request with
its header, its principal and its address; what comes back is the response as the controller encoded it.
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
"""How long the active controller is looked for, as in Kafka."""

ATTEMPT_TIMEOUT_MS: Final = 30_000
"""How long one controller may take for its answer (Kafka's controller.socket.timeout.ms)."""

_log: Final = EventLog("broker.forwarding")


class Forwarder:
    """Gets requests answered by the active controller, in this process or elsewhere."""

    def __init__(self, router: ControllerRouter, *, timeout_ms: float = FORWARDING_TIMEOUT_MS) -> None:
        self._router = router
        self._timeout_ms = timeout_ms

    def controller_versions(self) -> Mapping[int, ApiVersionRange] | None:
        """See `ControllerRouter`: what clients must not be promised more than."""
        return self._router.controller_versions()

    async def forward(
        self,
        request: Message,
        header: RequestHeader,
        client: ConnectionInfo,
        answer: type[M],
        here: Callable[[], Awaitable[M]],
    ) -> M:
        """What the active controller answers; `here` asks the one in this process, when that is it.

        Raises KafkaError (REQUEST_TIMED_OUT when no controller is found, UNKNOWN_SERVER_ERROR when it refuses the
        envelope, what `here` raises), and CloseConnection when it does not know the request in this version.
        """
        envelope = _envelope(request, header, client)

        async def there(remote: RemoteController) -> M:
            return _unpacked(await remote.ask(envelope, EnvelopeResponse), header, answer)

        try:
            return await self._router.run(here, there, within_ms=self._timeout_ms, attempt_ms=ATTEMPT_TIMEOUT_MS)
        except ControllerUnavailable as error:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error
        except VersionMismatch as error:
            raise CloseConnection(f"asks for what the controller cannot do: {error}") from error


def _envelope(request: Message, header: RequestHeader, client: ConnectionInfo) -> EnvelopeRequest:
    frame = b"".join(encode_request(request, header.api_version, header.correlation_id, header.client_id))
    address = ipaddress.ip_address(client.peer_host.partition("%")[0])
    return EnvelopeRequest(frame[SIZE_BYTES:], serialize_principal(client.principal), address.packed)


def _unpacked(envelope: EnvelopeResponse, header: RequestHeader, answer: type[M]) -> M:
    match envelope.error_code:
        case ErrorCode.NONE:
            return _decoded(envelope, header, answer)
        case ErrorCode.NOT_CONTROLLER:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        case ErrorCode.UNSUPPORTED_VERSION:
            raise CloseConnection(
                f"asks for API key {header.api_key} version {header.api_version}, which the controller does not serve"
            )
        case code:
            _log.warning("The controller refused a forwarded request", api_key=header.api_key, error_code=code)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _decoded(envelope: EnvelopeResponse, header: RequestHeader, answer: type[M]) -> M:
    try:
        correlation_id, response = decode_response(answer, header.api_version, envelope.response_data or b"")
        if correlation_id != header.correlation_id:
            raise DecodeError(f"answer {correlation_id} to request {header.correlation_id}")
    except DecodeError as error:
        _log.warning("The controller's answer to a forwarded request cannot be read", reason=str(error))
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
    return response
