"""Decisions as lines of the audit log."""

import json
from collections.abc import Callable
from typing import Any

from broker.api.pipeline.permission import CLUSTER_ACTION, READ_TOPIC, WRITE_TOPIC
from broker.audit.trail import RESOURCES_MAX_PER_LINE, AuditLog
from broker.net.request import ConnectionInfo
from protocol.api_keys import ApiKey

ALICE = ConnectionInfo("c", "CLIENT", "10.0.0.1", 4000, principal="User:alice")
BOB = ConnectionInfo("d", "CLIENT", "10.0.0.2", 4000, principal='User:b"\nob')


class Lines:
    """A sink, the loop's next turn, and the random draws."""

    def __init__(self, rate: float = 1.0, draw: float = 0.5) -> None:
        self.lines: list[bytes] = []
        self.soon: list[Callable[[], None]] = []
        self.log = AuditLog(self, rate, lambda: 1_700_000_000_123, lambda: draw, self.soon.append)

    def put(self, line: bytes) -> None:
        self.lines.append(line)

    def entries(self) -> list[dict[str, Any]]:
        for callback in self.soon:
            callback()
        self.soon.clear()
        return [json.loads(line) for line in self.lines]


def test_line_says_who_asked_for_what() -> None:
    audit = Lines()
    audit.log.decided(ALICE, ApiKey.PRODUCE, WRITE_TOPIC, "orders", is_allowed=False)
    assert audit.entries() == [
        {
            "time": "2023-11-14T22:13:20.123Z",
            "principal": "User:alice",
            "host": "10.0.0.1",
            "listener": "CLIENT",
            "api": "Produce",
            "operation": "WRITE",
            "resource_type": "TOPIC",
            "resources": ["orders"],
            "decision": "DENIED",
        }
    ]
    assert audit.lines[0].endswith(b"}\n")


def test_decisions_of_one_kind_share_a_line() -> None:
    audit = Lines()
    for name in ("a", "b"):
        audit.log.decided(ALICE, ApiKey.FETCH, READ_TOPIC, name, is_allowed=False)
    audit.log.decided(ALICE, ApiKey.FETCH, READ_TOPIC, "c", is_allowed=True)
    audit.log.decided(BOB, ApiKey.FETCH, READ_TOPIC, "c", is_allowed=True)
    assert len(audit.soon) == 1
    found = [(entry["principal"], entry["resources"], entry["decision"]) for entry in audit.entries()]
    assert found == [
        ("User:alice", ["a", "b"], "DENIED"),
        ("User:alice", ["c"], "ALLOWED"),
        ('User:b"\nob', ["c"], "ALLOWED"),
    ]
    assert all(line.count(b"\n") == 1 for line in audit.lines)


def test_denied_is_never_sampled_and_allowed_is() -> None:
    audit = Lines(rate=0.01)
    audit.log.decided(ALICE, ApiKey.FETCH, READ_TOPIC, "a", is_allowed=True)
    audit.log.decided(ALICE, ApiKey.FETCH, READ_TOPIC, "b", is_allowed=False)
    assert [entry["resources"] for entry in audit.entries()] == [["b"]]
    lucky = Lines(rate=0.01, draw=0.005)
    lucky.log.decided(ALICE, ApiKey.FETCH, READ_TOPIC, "a", is_allowed=True)
    assert [entry["resources"] for entry in lucky.entries()] == [["a"]]


def test_line_has_a_bound() -> None:
    audit = Lines()
    for number in range(RESOURCES_MAX_PER_LINE + 1):
        audit.log.decided(ALICE, ApiKey.METADATA, READ_TOPIC, str(number), is_allowed=False)
    assert [len(entry["resources"]) for entry in audit.entries()] == [RESOURCES_MAX_PER_LINE, 1]


def test_question_about_any_resource_has_no_name() -> None:
    audit = Lines()
    audit.log.decided(ALICE, ApiKey.VOTE, CLUSTER_ACTION, None, is_allowed=False)
    (entry,) = audit.entries()
    assert (entry["resource_type"], entry["resources"]) == ("CLUSTER", [None])


def test_failed_login_is_a_line_after_the_decisions_before_it() -> None:
    audit = Lines()
    audit.log.decided(ALICE, ApiKey.FETCH, READ_TOPIC, "a", is_allowed=False)
    audit.log.login_failed(BOB, "SCRAM-SHA-512", "x" * 300, "wrong password")
    first, second = audit.entries()
    assert first["decision"] == "DENIED"
    assert second == {
        "time": "2023-11-14T22:13:20.123Z",
        "user": "x" * 256,
        "host": "10.0.0.2",
        "listener": "CLIENT",
        "mechanism": "SCRAM-SHA-512",
        "reason": "wrong password",
        "decision": "NOT_AUTHENTICATED",
    }
