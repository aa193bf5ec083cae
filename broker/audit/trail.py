"""Decisions about principals as JSON lines: all refusals and failed logins, and a sample of what was allowed.

Decisions of one kind that follow each other without a pause, as a handler makes them that filters a list, share a line:
same connection, API, requirement and outcome. The line is complete when another kind follows, after
`RESOURCES_MAX_PER_LINE`, or in the next turn of the event loop.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

from broker.api.pipeline.permission import Requirement
from broker.net.request import ConnectionInfo
from protocol.api_keys import API_BY_KEY

RESOURCES_MAX_PER_LINE: Final = 1000
USER_CHARACTERS_MAX: Final = 256
_MS: Final = 1000


class AuditSink(Protocol):
    """Takes complete lines."""

    def put(self, line: bytes) -> None:
        """Take a line; never blocks."""
        ...


class AuditLog:
    """Collects decisions on the event loop.

    `allowed_rate` is the share, 0 to 1, of lines about allowed requests that are kept. `draw` returns a random number
    from 0 to 1, `call_soon` runs a function in the next turn of the loop.
    """

    def __init__(
        self,
        sink: AuditSink,
        allowed_rate: float,
        now_ms: Callable[[], int],
        draw: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._sink = sink
        self._allowed_rate = allowed_rate
        self._now_ms = now_ms
        self._draw = draw
        self._call_soon = call_soon
        self._kind: tuple[int, int, Requirement, bool] | None = None
        self._client: ConnectionInfo | None = None
        self._resources: list[str | None] = []
        self._is_kept = False

    def decided(
        self,
        client: ConnectionInfo,
        api_key: int,
        requirement: Requirement,
        resource_name: str | None,
        *,
        is_allowed: bool,
    ) -> None:
        """Note a decision. `resource_name` is None for a question about any resource of the type."""
        kind = (id(client), api_key, requirement, is_allowed)
        if kind != self._kind or len(self._resources) >= RESOURCES_MAX_PER_LINE:
            self._begin(client, kind)
        if self._is_kept:
            self._resources.append(resource_name)

    def login_failed(self, client: ConnectionInfo, mechanism: str, user: str | None, reason: str) -> None:
        """Note a failed login. `user` is the name that the client claimed, None if it claimed none."""
        self.flush()
        entry = {
            "time": time_text(self._now_ms()),
            "user": None if user is None else user[:USER_CHARACTERS_MAX],
            "host": client.peer_host,
            "listener": client.listener,
            "mechanism": mechanism,
            "reason": reason,
            "decision": "NOT_AUTHENTICATED",
        }
        self._sink.put(json.dumps(entry).encode() + b"\n")

    def flush(self) -> None:
        """Complete the line that is being collected."""
        kind, client = self._kind, self._client
        self._kind = self._client = None
        if self._resources and kind is not None and client is not None:
            self._sink.put(self._line(client, kind))
        self._resources = []

    def _begin(self, client: ConnectionInfo, kind: tuple[int, int, Requirement, bool]) -> None:
        is_first = self._kind is None
        self.flush()
        self._kind, self._client = kind, client
        self._is_kept = not kind[3] or self._draw() < self._allowed_rate
        if is_first:
            self._call_soon(self.flush)

    def _line(self, client: ConnectionInfo, kind: tuple[int, int, Requirement, bool]) -> bytes:
        _, api_key, requirement, is_allowed = kind
        permissions = [permission for clause in requirement.clauses for permission in clause]
        entry = {
            "time": time_text(self._now_ms()),
            "principal": client.principal,
            "host": client.peer_host,
            "listener": client.listener,
            "api": API_BY_KEY[api_key].name,
            "operation": "|".join(dict.fromkeys(each.operation.name for each in permissions)),
            "resource_type": "|".join(dict.fromkeys(each.resource_type.name for each in permissions)),
            "resources": self._resources,
            "decision": "ALLOWED" if is_allowed else "DENIED",
        }
        return json.dumps(entry).encode() + b"\n"


def time_text(now_ms: int) -> str:
    """Return a wall-clock time as ISO 8601 in UTC, with milliseconds."""
    return datetime.fromtimestamp(now_ms / _MS, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
