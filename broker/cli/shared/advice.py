"""The way out of a failure: what a person can check or run next, appended to the message of the error."""

from typing import Final

from broker.client import AuthenticationRefused, ClientError, ConnectionLost, UnsupportedVersion
from protocol.errors import ErrorCode, KafkaError

_LOGIN: Final = "Check user, password and sasl.mechanism in the file of --command-config."
_RIGHTS: Final = "Use the credentials of another user (--command-config), or grant the right with `ottla acls --add`."
_QUORUM: Final = "`ottla metadata-quorum describe --status` shows the controllers."
_TOPICS: Final = "`ottla topics --list` shows the topics."
_LEADERS: Final = "`ottla topics --describe --unavailable-partitions` shows partitions without a leader."

_BY_CODE: Final[dict[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _TOPICS,
    ErrorCode.UNKNOWN_TOPIC_ID: _TOPICS,
    ErrorCode.GROUP_ID_NOT_FOUND: "`ottla groups --list` shows the groups.",
    ErrorCode.LEADER_NOT_AVAILABLE: _LEADERS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: _LEADERS,
    ErrorCode.NOT_CONTROLLER: _QUORUM,
    ErrorCode.REQUEST_TIMED_OUT: f"{_QUORUM} default.api.timeout.ms in the file of --command-config raises the limit.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _LEADERS,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _RIGHTS,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _RIGHTS,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _RIGHTS,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _RIGHTS,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: _RIGHTS,
    ErrorCode.SASL_AUTHENTICATION_FAILED: _LOGIN,
    ErrorCode.SECURITY_DISABLED: "Set authorizer.class.name on all nodes to use ACLs.",
}

_BY_TEXT: Final = (
    ("Connection refused", "Start a broker there, or name another one with --bootstrap-server."),
    ("TLS", "Check that the listener uses TLS, and the trust store, in the file of --command-config."),
    (
        "not in the Kafka protocol",
        "The port belongs to another program or to a TLS listener; check --bootstrap-server.",
    ),
    (
        "closed the connection",
        "A TLS or SASL listener does that to a client without security.protocol; set the property by --command-config.",
    ),
    ("in time", "Check host, port and firewall; request.timeout.ms in the file of --command-config raises the limit."),
    ("name", "Check the host name."),
)
"""Advice by a part of the client's message, for lost connections; the first match counts."""


def advice(error: KafkaError | ClientError) -> str:
    """Return a sentence with the next step, "" if there is none to give."""
    if isinstance(error, KafkaError):
        return _BY_CODE.get(error.code, "")
    if isinstance(error, AuthenticationRefused):
        return _LOGIN
    if isinstance(error, UnsupportedVersion):
        return "`ottla broker-api-versions` shows what each broker serves."
    if isinstance(error, ConnectionLost):
        return next((hint for part, hint in _BY_TEXT if part in str(error)), "")
    return ""


def with_advice(text: str, error: KafkaError | ClientError) -> str:
    """Return the text of an error as a sentence, followed by the advice."""
    hint = advice(error)
    if not hint:
        return text
    return f"{text} {hint}" if text.endswith((".", "!", "?")) else f"{text}. {hint}"
