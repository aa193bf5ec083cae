"""The console's HTTP side: sites, rights, limits, and errors as JSON."""

import asyncio
import json
from typing import Any

import pytest

from broker.console.events import EventHub
from broker.console.overview import NodeSurvey, Overview
from broker.console.request import ConsoleError, ConsoleRequest, Json, not_found
from broker.console.sampling import ClusterSampler
from broker.console.service import REQUESTS_MAX, ConsoleService
from broker.console.topic_index import TopicIndex
from broker.http.messages import HttpRequest, HttpResponse
from broker.net.peer import PeerError
from protocol.errors import ErrorCode, KafkaError
from tests.broker.metadata.images import image_with
from tests.support.harnesses.console_harness import ConsoleHarness

OWN = {"host": "localhost:9644"}
ACTION = {**OWN, "x-ottla-console": "1", "origin": "http://localhost:9644"}


class Service:
    """A service with one view and one action. `fails` is what they raise; `seen` are their requests."""

    def __init__(self, *, has_credentials: bool = False, actions: bool = True) -> None:
        harness = ConsoleHarness(image_with())
        self.seen: list[ConsoleRequest] = []
        self.fails: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.actions = actions
        sampler = ClusterSampler(NodeSurvey(harness.cluster), harness.clock)
        overview = Overview(harness.cluster, TopicIndex(harness.node.image, lambda image, topic: 1), sampler)
        self.service = ConsoleService(
            {"view": self._serve, "session": self._serve},
            {"act": self._serve},
            EventHub(overview, sampler),
            has_credentials=has_credentials,
            host_names=lambda: {"node-1.example"},
            actions_enabled=lambda: self.actions,
        )

    async def _serve(self, request: ConsoleRequest) -> Json:
        self.seen.append(request)
        await self.gate.wait()
        if self.fails is not None:
            raise self.fails
        return {"a": 1}

    async def get(self, path: str, headers: dict[str, str] = OWN, **more: Any) -> HttpResponse:
        path, _, query = path.partition("?")
        return await self.service.get(HttpRequest(path, query, headers=headers, **more))

    async def post(self, headers: dict[str, str] = ACTION, body: bytes = b"{}", name: str = "act") -> HttpResponse:
        path = f"/console/api/actions/{name}"
        return await self.service.post(HttpRequest(path, method="POST", headers=headers, body=body, user="bob"))


def error(response: HttpResponse) -> str:
    assert response.content_type == "application/json"
    assert "Content-Security-Policy" in dict(response.headers)
    return str(json.loads(response.body)["error"])


async def test_view_gets_the_principal_and_the_parameters() -> None:
    own = Service()
    response = await own.get("/console/api/view?name=a%20b&x=", user="bob", peer_host="10.0.0.9")
    assert (response.status, json.loads(response.body)) == (200, {"a": 1})
    assert own.seen == [ConsoleRequest({"name": "a b", "x": ""}, "User:bob", "10.0.0.9", {})]
    await own.get("/console/api/view")
    assert own.seen[-1].principal == "User:ANONYMOUS"


async def test_session_tells_whether_actions_are_allowed() -> None:
    own = Service(actions=False)
    assert json.loads((await own.get("/console/api/session")).body) == {"a": 1, "actions": False}


@pytest.mark.parametrize(
    ("raised", "status", "sentence"),
    [
        (not_found("There is none."), 404, "There is none."),
        (PeerError("node 2 was not reached"), 503, "Another node does not answer: node 2 was not reached."),
        (KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "no ACLs yet"), 503, "The node does not answer: no ACLs yet."),
    ],
)
async def test_refusal_is_a_sentence(raised: Exception, status: int, sentence: str) -> None:
    own = Service()
    own.fails = raised
    response = await own.get("/console/api/view")
    assert (response.status, error(response)) == (status, sentence)


async def test_unknown_paths_and_parameters_are_refused() -> None:
    own = Service()
    assert (await own.get("/console/api/nothing")).status == 404
    assert (await own.get("/console/api/view?a=%ff")).status == 400
    assert (await own.get("/console/api/view?" + "&".join(f"a{n}=1" for n in range(60)))).status == 400
    assert (await own.post(name="nothing")).status == 404
    assert not own.seen


async def test_rebound_name_is_refused_for_views_and_actions() -> None:
    own = Service()
    for response in (
        await own.get("/console/api/view", {"host": "evil.example"}),
        await own.get("/console/api/events", {"host": "evil.example"}),
        await own.get("/console/api/view", {}),
        await own.post({**ACTION, "host": "evil.example", "origin": "http://evil.example"}),
    ):
        assert response.status == 421
        assert "advertised.listeners" in error(response)
    assert (await own.get("/console/api/view", {"host": "NODE-1.example:9644"})).status == 200
    assert len(own.seen) == 1


async def test_credentials_make_any_name_acceptable() -> None:
    own = Service(has_credentials=True)
    assert (await own.get("/console/api/view", {"host": "console.example"})).status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_requests_of_other_sites_are_refused(site: str) -> None:
    own = Service(has_credentials=True)
    assert (await own.get("/console/api/view", {**OWN, "sec-fetch-site": site})).status == 403
    assert (await own.get("/console/api/events", {**OWN, "sec-fetch-site": site})).status == 403
    assert (await own.post({**ACTION, "sec-fetch-site": site})).status == 403
    assert (await own.get("/console/api/view", {**OWN, "sec-fetch-site": "same-origin"})).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {**OWN, "origin": "http://localhost:9644"},
        {**ACTION, "origin": "http://evil.example"},
        {**ACTION, "origin": "http://localhost:3000"},
        {**ACTION, "origin": "null"},
    ],
    ids=["no header of the page", "other site", "other port", "null"],
)
async def test_action_of_another_page_is_refused(headers: dict[str, str]) -> None:
    own = Service()
    response = await own.post(headers)
    assert (response.status, own.seen) == (403, [])
    assert "own page" in error(response)


async def test_actions_are_refused_while_they_are_disabled() -> None:
    own = Service(actions=False)
    response = await own.post()
    assert (response.status, own.seen) == (403, [])
    assert "ottla.console.actions.enable" in error(response)
    own.actions = True
    response = await own.post(body=b'{"name": "t"}')
    assert json.loads(response.body) == {"ok": True, "a": 1}
    assert (own.seen[0].principal, own.seen[0].body) == ("User:bob", {"name": "t"})


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"[" * 50_000])
async def test_body_that_is_no_object_is_refused(body: bytes) -> None:
    own = Service()
    assert (await own.post(body=body)).status == 400


async def test_requests_at_the_same_time_are_bounded() -> None:
    own = Service()
    own.gate.clear()
    waiting = [asyncio.ensure_future(own.get("/console/api/view")) for _ in range(REQUESTS_MAX)]
    await asyncio.sleep(0)
    response = await own.get("/console/api/view")
    assert (response.status, "too many requests" in error(response)) == (503, True)
    own.gate.set()
    assert {response.status for response in await asyncio.gather(*waiting)} == {200}
    assert (await own.get("/console/api/view")).status == 200


async def test_page_and_its_files_need_no_rights() -> None:
    own = Service()
    assert (await own.get("/", {"host": "evil.example"})).status == 200
    assert (await own.get("/console/app.js", {})).content_type.startswith("text/javascript")
    assert (await own.get("/console/nothing", {})).status == 404


def test_error_of_the_console_is_its_sentence() -> None:
    assert str(not_found("gone")) == "gone"
    assert isinstance(not_found("gone"), ConsoleError)
