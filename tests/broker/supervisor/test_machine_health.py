"""The health of all brokers of a machine, with scripted brokers."""

import asyncio
import json
from pathlib import Path

from broker.http.messages import HttpRequest, HttpResponse
from broker.supervisor.layout import LocalNode
from broker.supervisor.machine_health import METRICS, SETTLE_TIMEOUT_S, MachineHealth, Member
from tests.support.fakes.fast_forward_loop import run_fast

NODE = LocalNode(2, Path("unused"), "127.0.0.1:9102", None, ())
MEMBERS = [Member(1, "127.0.0.1:9645", False), Member(2, "127.0.0.1:9646", False)]


class Brokers:
    """Answers of brokers: the reason why each is not ready, and under-replicated partitions at successive looks."""

    def __init__(self, reasons: dict[int, str | None], *under_replicated: int) -> None:
        self.reasons = reasons
        self._under_replicated = list(under_replicated)
        self.looks = 0

    async def ask(self, member: Member, path: str) -> tuple[bool, str]:
        if path == METRICS:
            self.looks += 1
            count = self._under_replicated.pop(0) if self._under_replicated else 0
            return True, f"# HELP x\nkafka_server_replicamanager_underreplicatedpartitions {count}.0\n"
        reason = self.reasons[member.node_id]
        return reason is None, json.dumps({"status": "ready"} if reason is None else {"reason": reason})


def answer(brokers: Brokers, path: str, **headers: str) -> HttpResponse:
    async def main() -> HttpResponse:
        handler = MachineHealth(MEMBERS, brokers.ask).routes()[path]
        response = handler(HttpRequest(path, headers=headers))
        return response if isinstance(response, HttpResponse) else await response

    return run_fast(main())


def settle(brokers: Brokers) -> float:
    """Return the seconds that the wait for node 2 takes."""

    async def main() -> float:
        began_s = asyncio.get_running_loop().time()
        await MachineHealth(MEMBERS, brokers.ask).settle(NODE)
        return asyncio.get_running_loop().time() - began_s

    return run_fast(main())


def test_machine_is_ready_when_all_brokers_are() -> None:
    response = answer(Brokers({1: None, 2: None}), "/health/ready")
    assert response.status == 200
    assert json.loads(response.body) == {
        "status": "ready",
        "brokers": {"1": {"status": "ready"}, "2": {"status": "ready"}},
    }


def test_one_broker_that_is_not_ready_makes_the_machine_not_ready() -> None:
    response = answer(Brokers({1: None, 2: "no active controller"}), "/health/ready")
    assert response.status == 503
    assert json.loads(response.body)["reason"] == "broker 2: no active controller"


def test_machine_lives_without_ready_brokers() -> None:
    assert answer(Brokers({1: "starting", 2: "starting"}), "/health/live").status == 200


def test_console_is_that_of_the_first_ready_broker() -> None:
    response = answer(Brokers({1: "starting", 2: None}), "/", host="kafka.example:9644")
    assert (response.status, dict(response.headers)) == (307, {"Location": "http://kafka.example:9646/"})


def test_console_without_a_ready_broker_says_so() -> None:
    assert answer(Brokers({1: "starting", 2: "starting"}), "/").status == 503


def test_restart_waits_until_no_partition_is_under_replicated() -> None:
    brokers = Brokers({1: None, 2: None}, 3, 0, 0, 1)
    assert settle(brokers) > 0
    assert brokers.looks == 6


def test_wait_for_a_broker_that_stays_unready_ends() -> None:
    assert settle(Brokers({1: None, 2: "recovering"})) >= SETTLE_TIMEOUT_S


def test_broker_without_http_is_not_waited_for() -> None:
    async def refuse(member: Member, path: str) -> tuple[bool, str]:
        raise AssertionError("asked")

    run_fast(MachineHealth([Member(2, None, False)], refuse).settle(NODE))
