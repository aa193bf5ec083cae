"""The way out of a failure: what a person can check or run next, appended to the message of the error."""

from collections.abc import Iterable
from typing import Final

from broker.client import AuthenticationRefused, ClientError, ConnectionLost, UnsupportedVersion
from protocol.errors import ErrorCode, KafkaError

_LOGIN: Final = "Check user, password and sasl.mechanism in the file of --command-config."
_RIGHTS: Final = "Use the credentials of another user (--command-config), or grant the right with `ottla acls --add`."
_QUORUM: Final = "`ottla metadata-quorum describe --status` shows the controllers."
_TOPICS: Final = "`ottla topics --list` shows the topics."
_LEADERS: Final = "`ottla topics --describe --unavailable-partitions` shows partitions without a leader."

_ISR: Final = "`ottla topics --describe --under-min-isr-partitions` shows the partitions that lack replicas."
_MEMBERS: Final = "Stop the members first; `ottla consumer-groups --describe --members` shows them."
_VERSIONS: Final = "`ottla broker-api-versions` shows what each broker serves."

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
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "Set sasl.mechanism in the file of --command-config to one of the listener.",
    ErrorCode.ILLEGAL_SASL_STATE: _LOGIN,
    ErrorCode.NON_EMPTY_GROUP: _MEMBERS,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: _MEMBERS,
    ErrorCode.INVALID_REPLICATION_FACTOR: "Start more brokers (`ottla cluster list-endpoints`), or lower the factor.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "Choose another name, or give --if-not-exists.",
    ErrorCode.NOT_ENOUGH_REPLICAS: _ISR,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _ISR,
    ErrorCode.UNSUPPORTED_VERSION: _VERSIONS,
    ErrorCode.SECURITY_DISABLED: "Set authorizer.class.name on all nodes to use ACLs.",
}

_PROTOCOL: Final = (
    "A TLS or SASL listener does that to a client without security.protocol; set the property by --command-config."
)

_BY_TEXT: Final = (
    ("Connection refused", "Start a broker there, or name another one with --bootstrap-server."),
    (
        "certificate verify failed: hostname",
        "Use a host name of the certificate in --bootstrap-server, or issue a certificate for this one.",
    ),
    (
        "certificate verify failed: IP",
        "Use a host name of the certificate in --bootstrap-server, or issue a certificate for this address.",
    ),
    (
        "certificate verify failed",
        "Name the authority of the brokers' certificates by ssl.truststore.location in the file of --command-config.",
    ),
    (
        "wrong version number",
        "The listener has no TLS: set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or name a TLS listener.",
    ),
    (
        "certificate required",
        "The listener asks for a client certificate: set ssl.keystore.location in the file of --command-config.",
    ),
    ("TLS", "Check that the listener uses TLS, and the trust store, in the file of --command-config."),
    (
        "not in the Kafka protocol",
        "The port belongs to another program or to a TLS listener; check --bootstrap-server.",
    ),
    ("closed the connection", _PROTOCOL),
    ("broke the connection", _PROTOCOL),
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
        return _VERSIONS
    if isinstance(error, ConnectionLost):
        return next((hint for part, hint in _BY_TEXT if part in str(error)), "")
    return ""


def with_advice_for(text: str, codes: Iterable[int]) -> str:
    """Return the text of several refusals as a sentence, followed by the advice for the first code that has one."""
    hints = (_BY_CODE.get(ErrorCode(code), "") for code in codes)
    return _joined(text, next(filter(None, hints), ""))


def with_advice(text: str, error: KafkaError | ClientError) -> str:
    """Return the text of an error as a sentence, followed by the advice."""
    return _joined(text, advice(error))


def _joined(text: str, hint: str) -> str:
    if not hint:
        return text
    return f"{text} {hint}" if text.endswith((".", "!", "?")) else f"{text}. {hint}"
