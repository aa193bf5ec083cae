"""Decisions of handlers reach the audit trail."""

from broker.api.pipeline.permission import READ_TOPIC, Permission, Requirement
from broker.api.serving.context import RequestContext
from broker.net.request import ConnectionInfo, Request
from protocol.api_keys import ApiKey
from protocol.headers import RequestHeader

CLIENT = ConnectionInfo("c", "CLIENT", "10.0.0.1", 4000, principal="User:alice")
REQUEST = Request(RequestHeader(ApiKey.FETCH, 12, 1, ""), memoryview(b""), CLIENT, 0)


class OnlyPublic:
    def is_allowed(self, principal: str, host: str, permission: Permission, resource_name: str) -> bool:
        return resource_name == "public"

    def is_allowed_on_some(self, principal: str, host: str, permission: Permission) -> bool:
        return True


class Trail:
    def __init__(self) -> None:
        self.seen: list[tuple[int, str | None, bool]] = []

    def decided(
        self,
        client: ConnectionInfo,
        api_key: int,
        requirement: Requirement,
        resource_name: str | None,
        *,
        is_allowed: bool,
    ) -> None:
        assert (client, requirement) == (CLIENT, READ_TOPIC)
        self.seen.append((api_key, resource_name, is_allowed))

    def login_failed(self, client: ConnectionInfo, mechanism: str, user: str | None, reason: str) -> None:
        raise AssertionError("no client logs in")


def test_each_decision_is_observed_with_its_api() -> None:
    trail = Trail()
    context = RequestContext(12, "", CLIENT, REQUEST, OnlyPublic(), trail)
    assert context.allows(READ_TOPIC, "public")
    assert not context.allows(READ_TOPIC, "private")
    assert context.allows_some(READ_TOPIC)
    assert trail.seen == [(ApiKey.FETCH, "public", True), (ApiKey.FETCH, "private", False), (ApiKey.FETCH, None, True)]
