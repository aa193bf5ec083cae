"""Envelope (key 58), version 0: a client's request, forwarded by a broker (KIP-590).

The request inside is answered as if the client had sent it here, under the client's principal and address, and only if
its route is forwarded. The sender needs ClusterAction on the cluster; without an authorizer every peer of the
controller listener is trusted, as in Kafka.
"""

import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import replace
from inspect import isawaitable
from typing import Final

from broker.api.pipeline.audit import AuditTrail
from broker.api.pipeline.authorization import Authorizer, is_allowed_on_cluster
from broker.api.pipeline.permission import CLUSTER_RESOURCE_NAME, Requirement
from broker.api.serving.context import RequestContext
from broker.api.serving.errors import error_response
from broker.api.serving.forwarding import reports_not_controller
from broker.api.serving.route import Route
from broker.net.request import Request
from broker.runtime.controller.principals import ForwardedPrincipal, deserialize_principal
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.framing import SIZE_BYTES
from protocol.headers import decode_request_header, encode_response
from protocol.messages import Message
from protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from protocol.primitives import Buffer

_NO_PORT: Final = 0


class EnvelopeHandler:
    """Answers Envelope. `forwardable` returns the rows whose requests may come in envelopes."""

    def __init__(self, forwardable: Callable[[], Iterable[Route]], authorizer: Authorizer | None = None) -> None:
        self._forwardable = forwardable
        self._authorizer = authorizer

    async def __call__(self, envelope: EnvelopeRequest, context: RequestContext) -> EnvelopeResponse:
        try:
            inner = _unwrap(envelope, context)
            row = self._row(inner)
            request = _decoded(row, inner)
        except KafkaError as refusal:
            return EnvelopeResponse(error_code=refusal.code)
        # Later requests of this connection come from other clients: a broker forwards one of each client at a time.
        context.effects_applied()
        is_allowed = is_allowed_on_cluster(self._authorizer, inner.connection, row.permission)
        if context.audit is not None and isinstance(row.permission, Requirement) and row.permission.cluster_clauses:
            context.audit.decided(
                inner.connection,
                row.key,
                Requirement(row.permission.cluster_clauses),
                CLUSTER_RESOURCE_NAME,
                is_allowed=is_allowed,
            )
        if is_allowed:
            response = await _respond(row, request, inner, self._authorizer, context.audit)
        else:
            response = error_response(row.response_class, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
        if reports_not_controller(row.key, response):
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
        header = inner.header
        frame = b"".join(encode_response(row.key, header.api_version, header.correlation_id, response))
        return EnvelopeResponse(frame[SIZE_BYTES:])

    def _row(self, inner: Request) -> Route:
        """Return the row of the inner request. Raises KafkaError INVALID_REQUEST, UNSUPPORTED_VERSION."""
        key, version = inner.header.api_key, inner.header.api_version
        row = next((row for row in self._forwardable() if row.key == key), None)
        if row is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"API key {key} cannot be forwarded")
        if version not in row.versions:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        return row


def _unwrap(envelope: EnvelopeRequest, context: RequestContext) -> Request:
    """Return the client's request as its own connection would have brought it. Raises KafkaError."""
    (principal, is_token), address = _principal(envelope.request_principal), _address(envelope.client_host_address)
    client = replace(
        context.connection,
        peer_host=address,
        peer_port=_NO_PORT,
        principal=principal,
        is_token_authenticated=is_token,
    )
    try:
        header, start = decode_request_header(memoryview(envelope.request_data))
    except DecodeError as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION) from error
    body = memoryview(envelope.request_data)[start:]
    return Request(header, body, client, context.received_ms, len(envelope.request_data), context.request.arrived_ms)


def _principal(data: Buffer | None) -> ForwardedPrincipal:
    try:
        return deserialize_principal(data or b"")
    except DecodeError as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE) from error


def _address(data: Buffer) -> str:
    try:
        return str(ipaddress.ip_address(bytes(data)))
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a client's address has 4 or 16 bytes") from error


def _decoded(row: Route, inner: Request) -> Message:
    try:
        return row.decode(inner.body, inner.header.api_version)
    except DecodeError as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION) from error


async def _respond(
    row: Route, request: Message, inner: Request, authorizer: Authorizer | None, audit: AuditTrail | None
) -> Message:
    """Return the handler's response, or an error response. Unexpected exceptions fail the envelope."""
    context = RequestContext(
        inner.header.api_version, inner.header.client_id or "", inner.connection, inner, authorizer, audit
    )
    try:
        response = row.handler(request, context)
        if isawaitable(response):
            response = await response
    except KafkaError as error:
        return error_response(row.response_class, request, error.code, error.message)
    assert isinstance(response, row.response_class), "a forwarded request has a response"
    return response
