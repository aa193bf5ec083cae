"""IAM actions of the S3 store: `docs/s3.md` against the requests that the store can send."""

import ast
import re
from pathlib import Path

import pytest

import storage.tiered.stores.s3 as s3_store
from storage.tiered.errors import ObjectStoreError
from storage.tiered.stores.s3 import S3Settings, S3Store
from storage.tiered.stores.s3_client import S3Client
from storage.tiered.stores.s3_permissions import ACTIONS
from tests.support.fakes.stub_s3_server import StubS3Server, refusal

PAGE = Path(__file__).parents[4] / "docs" / "s3.md"
NOT_REQUESTS = {"close"}


def operation(method: str) -> str:
    """Return the SDK's name of a request from the name of its method."""
    return "".join(word.capitalize() for word in method.split("_"))


def documented() -> dict[str, str]:
    """Return actions by request, from the table of the page."""
    rows = re.findall(r"^\| `(s3:\w+)` \| \w+ \| ([\w, ]+) \|", PAGE.read_text(), re.MULTILINE)
    return {request: action for action, requests in rows for request in requests.split(", ")}


def test_every_request_of_the_client_has_an_action() -> None:
    methods = {name for name in vars(S3Client) if not name.startswith("_")} - NOT_REQUESTS
    assert {operation(method) for method in methods} == set(ACTIONS)


def test_store_sends_only_requests_of_the_client() -> None:
    """The client is untyped at runtime, so that a call outside the protocol would work."""
    tree = ast.parse(Path(s3_store.__file__).read_text())
    calls = {
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "client"
    }
    assert {operation(call) for call in calls - NOT_REQUESTS} == set(ACTIONS)


def test_actions_are_documented() -> None:
    assert documented() == dict(ACTIONS)


def test_policy_on_the_page_allows_all_actions_of_brokers() -> None:
    policy = PAGE.read_text().partition("```json")[2].partition("```")[0]
    assert set(re.findall(r"s3:[A-Z]\w+", policy)) == set(ACTIONS.values()) - {"s3:CreateBucket"}


@pytest.mark.parametrize(("key", "action"), [("k", "s3:GetObject and s3:ListBucket"), (None, "s3:ListBucket")])
def test_denied_request_names_the_missing_action(key: str | None, action: str) -> None:
    with StubS3Server() as server:
        server.plan = [refusal(403, "AccessDenied")]
        settings = S3Settings(
            bucket_name="b",
            region="r",
            endpoint_url=server.endpoint,
            path_style_access_enabled=True,
            access_key_id="a",
            secret_access_key="s",
        )
        store = S3Store(settings)
        with pytest.raises(ObjectStoreError, match=f"the IAM policy must allow {action}"):
            list(store.list("") if key is None else store.get(key))
        store.close()
