"""The health of all brokers of a machine as one answer, and the wait between two brokers of a rolling restart."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from broker.http.messages import HttpRequest, HttpResponse, Routes, json_response
from broker.http.probe import READY, answer
from broker.supervisor.layout import LocalNode

METRICS: Final = "/metrics"
SETTLE_TIMEOUT_S: Final = 120.0
"""Longest wait for a restarted broker to be in sync again, as long as a machine that restarts may take."""
POLL_S: Final = 0.5
_UNDER_REPLICATED: Final = "kafka_server_replicamanager_underreplicatedpartitions "


class Member(NamedTuple):
    """A broker of the machine. `listener` is its HTTP address as host:port, None without a fixed one."""

    node_id: int
    listener: str | None
    tls: bool


Ask = Callable[[Member, str], Awaitable[tuple[bool, str]]]
"""Requests a path of a broker. Returns whether the status is 200, and the body or the reason why there is none."""


async def ask_over_http(member: Member, path: str) -> tuple[bool, str]:
    """Request a path of a broker, on a thread, for two seconds at most."""
    if member.listener is None:
        return False, "the broker serves no HTTP at a fixed port"
    return await asyncio.to_thread(answer, member.listener, path, tls=member.tls)


class MachineHealth:
    """Asks the brokers of a machine when a client asks."""

    def __init__(self, members: Sequence[Member], ask: Ask = ask_over_http) -> None:
        self._members = {member.node_id: member for member in members}
        self._ask = ask

    def routes(self) -> Routes:
        """Return `/health/live` and `/health/ready` of the machine, and `/`, which leads to a broker's console."""
        return {"/health/live": self._live, "/health/ready": self._ready, "/": self._console}

    async def reasons(self) -> Mapping[int, str | None]:
        """Return for each node id why clients should not connect to that broker now, None where they may."""
        answers = await asyncio.gather(*(self._ask(member, READY) for member in self._members.values()))
        return {
            node_id: None if is_ready else _reason(body)
            for node_id, (is_ready, body) in zip(self._members, answers, strict=True)
        }

    async def settle(self, node: LocalNode) -> None:
        """Wait until the broker is ready and no broker of the machine leads an under-replicated partition.

        Returns after `SETTLE_TIMEOUT_S` in any case, and at once for a broker without HTTP.
        """
        member = self._members[node.id]
        if member.listener is None:
            return
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + SETTLE_TIMEOUT_S
        while loop.time() < deadline_s:
            if await self._is_settled(member):
                return
            await asyncio.sleep(POLL_S)

    async def _is_settled(self, member: Member) -> bool:
        if not (await self._ask(member, READY))[0]:
            return False
        pages = await asyncio.gather(*(self._ask(each, METRICS) for each in self._members.values()))
        return not any(_under_replicated(body) for is_answered, body in pages if is_answered)

    def _live(self, request: HttpRequest) -> HttpResponse:
        return json_response(200, {"status": "live"})

    async def _ready(self, request: HttpRequest) -> HttpResponse:
        reasons = await self.reasons()
        brokers = {
            str(node_id): {"status": "ready"} if reason is None else {"status": "not ready", "reason": reason}
            for node_id, reason in reasons.items()
        }
        waiting = [f"broker {node_id}: {reason}" for node_id, reason in reasons.items() if reason is not None]
        if not waiting:
            return json_response(200, {"status": "ready", "brokers": brokers})
        return json_response(503, {"status": "not ready", "reason": "; ".join(waiting), "brokers": brokers})

    async def _console(self, request: HttpRequest) -> HttpResponse:
        reasons = await self.reasons()
        first = next((each for each, reason in reasons.items() if reason is None), None)
        listener = None if first is None else self._members[first].listener
        if first is None or listener is None:
            return json_response(503, {"status": "not ready", "reason": "No broker of this machine is ready."})
        scheme = "https" if self._members[first].tls else "http"
        host = request.headers.get("host", "").rpartition(":")[0] or listener.rpartition(":")[0]
        location = f"{scheme}://{host}:{listener.rpartition(':')[2]}/"
        return HttpResponse(307, b"", headers=[("Location", location)])


def _reason(body: str) -> str:
    """Return the reason in a broker's answer, or the words that there are instead."""
    try:
        parsed = json.loads(body)
    except ValueError:
        return body
    return str(parsed["reason"]) if isinstance(parsed, dict) and "reason" in parsed else body


def _under_replicated(page: str) -> float:
    """Return the number of under-replicated partitions on a page of metrics, 0 where it is missing."""
    lines = (line for line in page.splitlines() if line.startswith(_UNDER_REPLICATED))
    return max((float(line.rpartition(" ")[2]) for line in lines), default=0.0)
