"""SaslHandshake (key 17) and SaslAuthenticate (key 36) outside an exchange: ILLEGAL_SASL_STATE (KIP-43, KIP-152).

Requests of an exchange end in the SASL stage of their connection, before the table of routes.
"""

from broker.api.serving.context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def refuse_handshake(_request: SaslHandshakeRequest, _context: RequestContext) -> SaslHandshakeResponse:
    """Refuse the handshake of a connection that is authenticated."""
    return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)


def refuse_token(_request: SaslAuthenticateRequest, _context: RequestContext) -> SaslAuthenticateResponse:
    """Refuse a token without an exchange."""
    return SaslAuthenticateResponse(
        ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received after successful authentication"
    )
