"""The joined console: views, actions and events over one cluster, and the rule for values that are not shown."""

import asyncio
import json

import pytest

from broker.console.building import BuiltConsole, build_console, is_secret
from broker.console.history import LogAccess
from broker.http.messages import HttpRequest
from broker.metadata.image.config_image import ConfigResource, ResourceType
from broker.metadata.image.delta import MetadataDelta
from broker.metadata.image.metadata_image import MetadataImage
from tests.broker.console.test_history import MemoryLog
from tests.broker.metadata.histories import History, folded
from tests.support.fakes.runtimes import make_runtime
from tests.support.harnesses.console_harness import ConsoleHarness

OWN = {"host": "localhost:9644"}


class Built:
    """A console over the image and the log of a history; `actions` is whether actions are enabled."""

    def __init__(self, *, actions: bool = False) -> None:
        batches = History(3, steps=60).batches
        self.log = MemoryLog(batches)
        self.harness = ConsoleHarness(folded(batches))
        self.actions = actions
        access = LogAccess(self.log, lambda: self.log.end, lambda: False, list)
        self.console: BuiltConsole = build_console(
            self.harness.node,
            min_isr=lambda image, topic: 1,
            has_credentials=False,
            host_names=lambda: (),
            actions_enabled=lambda: self.actions,
            log=access,
            runtime=make_runtime(asyncio.get_running_loop()),
        )
        self.console.on_metadata(MetadataDelta(MetadataImage()), self.harness.image)

    async def get(self, path: str) -> tuple[int, object]:
        path, _, query = path.partition("?")
        response = await self.console.service.get(HttpRequest(f"/console/api/{path}", query, headers=OWN))
        assert isinstance(response.body, bytes)
        return response.status, json.loads(response.body)


@pytest.mark.parametrize(
    ("kind", "key", "expected"),
    [
        (ResourceType.BROKER, "listener.name.x.ssl.keystore.password", True),
        (ResourceType.BROKER, "log.retention.ms", False),
        (ResourceType.TOPIC, "retention.ms", False),
    ],
)
def test_passwords_of_brokers_are_secret(kind: ResourceType, key: str, expected: bool) -> None:
    assert is_secret(ConfigResource(kind, "1"), key) is expected


async def test_views_show_the_image_of_the_node() -> None:
    built = Built()
    status, page = await built.get("topics?limit=100")
    assert status == 200
    assert isinstance(page, dict)
    names = [row["name"] for row in page["items"]]
    assert names
    assert all(built.harness.image.topics.by_name(name) for name in names)


@pytest.mark.parametrize("view", ["session", "acls", "quotas", "users", "timeline"])
async def test_every_part_is_reachable(view: str) -> None:
    status, _ = await Built().get(view)
    assert status == 200


async def test_unknown_view_is_not_found() -> None:
    assert (await Built().get("nothing"))[0] == 404


async def test_time_line_reads_the_log_of_the_node() -> None:
    built = Built()
    status, bounds = await built.get("timeline")
    assert status == 200
    assert isinstance(bounds, dict)
    assert bounds["last_offset"] == built.log.end - 1


async def test_actions_follow_the_switch() -> None:
    built = Built()
    headers = {**OWN, "x-ottla-console": "1", "origin": "http://localhost:9644"}
    request = HttpRequest("/console/api/actions/topic/create", method="POST", headers=headers, body=b"{}", user="bob")
    assert (await built.console.service.post(request)).status == 403
    built.actions = True
    assert (await built.console.service.post(request)).status != 403
    built.console.close()
