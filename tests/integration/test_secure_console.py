"""Console, metrics and health of `ottla cluster --secure`: HTTPS, with the credentials in DIR/secure."""

import base64
import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker.cli.main import run
from broker.config.load import read_properties
from broker.http.probe import READY, answer
from tests.support.clients.partition_states import until
from tests.support.processes.ottla_cluster import OttlaCluster

pytestmark = pytest.mark.integration

DEADLINE_S = 60
VIEWER = "viewer:of the viewer"
OVERVIEW = "/console/api/overview"
CREATE = "/console/api/actions/create-topic"


class Answer(NamedTuple):
    status: int
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Browser:
    """An HTTP client that trusts the authority of the cluster."""

    def __init__(self, cluster: OttlaCluster) -> None:
        self.secure = cluster.directory / "secure"
        (line,) = [line for line in cluster.lines if line.startswith("node 1  ")]
        url = next(word for word in line.split() if "://" in word)
        assert url.startswith("https://")
        self.listener = url.removeprefix("https://")

    @property
    def admin(self) -> str:
        return f"admin:{(self.secure / 'admin.password').read_text().strip()}"

    def ask(self, path: str, login: str | None, body: Mapping[str, object] | None = None) -> Answer:
        """Send a GET, or a POST as the console's scripts do."""
        context = ssl.create_default_context(cafile=str(self.secure / "ca.pem"))
        connection = http.client.HTTPSConnection(self.listener, timeout=30, context=context)
        headers = {} if login is None else {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}
        if body is not None:
            headers |= {"X-Ottla-Console": "1", "Content-Type": "application/json"}
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return Answer(response.status, text)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaCluster]:
    settings = {"ottla.ssl.reload.interval.ms": "200"}
    with OttlaCluster(tmp_path_factory.mktemp("secure") / "c", 1, settings, secure=True) as running:
        yield running


@pytest.fixture(scope="module")
def browser(cluster: OttlaCluster) -> Browser:
    return Browser(cluster)


def with_viewer(cluster: OttlaCluster, browser: Browser) -> None:
    """Add a user that may describe the cluster and nothing else."""
    credentials = browser.secure / "http.credentials"
    if VIEWER not in credentials.read_text():
        credentials.write_text(f"{credentials.read_text()}{VIEWER}\n")
        at = ["--bootstrap-server", cluster.bootstrap, "--command-config", str(browser.secure / "client.properties")]
        assert (
            run(["acls", *at, "--add", "--allow-principal", "User:viewer", "--operation", "Describe", "--cluster"]) == 0
        )
    until(lambda: browser.ask(OVERVIEW, VIEWER).status == 200, DEADLINE_S)


def test_super_user_sees_and_acts(cluster: OttlaCluster, browser: Browser) -> None:
    hint = f"console: log in as admin with the password in {browser.secure / 'admin.password'}"
    assert hint in cluster.lines
    until(lambda: browser.ask(OVERVIEW, browser.admin).status == 200, DEADLINE_S)
    session = browser.ask("/console/api/session", browser.admin).json
    assert (session["principal"], session["overview"], session["actions"]) == ("User:admin", True, True)
    made = browser.ask(CREATE, browser.admin, {"name": "orders", "partitions": 2, "replication_factor": 1})
    assert made.status == 200, made.text
    topics = browser.ask("/console/api/topics", browser.admin).json
    assert "orders" in [each["name"] for each in topics["items"]]
    users = browser.ask("/console/api/users", browser.admin).json
    assert [each["name"] for each in users["items"]] == ["admin"]
    assert "kafka_server_" in browser.ask("/metrics", browser.admin).text


def test_viewer_sees_the_overview_and_cannot_act(cluster: OttlaCluster, browser: Browser) -> None:
    with_viewer(cluster, browser)
    refused = browser.ask(CREATE, VIEWER, {"name": "of-the-viewer", "partitions": 1, "replication_factor": 1})
    assert refused.status == 403, refused.text
    assert "of-the-viewer" not in browser.ask("/console/api/topics", browser.admin).text
    assert browser.ask("/console/api/topics", VIEWER).json["items"] == []


@pytest.mark.parametrize("path", ["/", "/metrics", OVERVIEW, "/console/api/events"])
@pytest.mark.parametrize("login", [None, "admin:wrong", "nobody:"])
def test_others_see_nothing_but_the_health(browser: Browser, path: str, login: str | None) -> None:
    assert browser.ask(path, login).status == 401
    assert browser.ask(READY, login).status in (200, 503)


def test_anonymous_action_is_refused(browser: Browser) -> None:
    assert browser.ask(CREATE, None, {"name": "x", "partitions": 1, "replication_factor": 1}).status == 401


def test_container_health_check_needs_no_credentials(browser: Browser) -> None:
    until(lambda: answer(browser.listener, READY, tls=True)[0], DEADLINE_S)


def test_plain_http_gets_a_sentence(browser: Browser) -> None:
    connection = http.client.HTTPConnection(browser.listener, timeout=30)
    connection.request("GET", "/")
    response = connection.getresponse()
    assert (response.status, response.read()) == (
        400,
        b"This port speaks HTTPS only: use https:// in place of http://.\n",
    )
    connection.close()


def test_rotation_renews_certificate_and_password(cluster: OttlaCluster, browser: Browser) -> None:
    with_viewer(cluster, browser)
    host, port = browser.listener.split(":")
    former, certificate = browser.admin, ssl.get_server_certificate((host, int(port)))
    assert run(["cluster", "--rotate-secrets", "--dir", str(cluster.directory)]) == 0
    until(lambda: browser.ask(OVERVIEW, former).status == 401, DEADLINE_S)
    assert browser.ask(OVERVIEW, browser.admin).status == 200
    assert browser.ask(OVERVIEW, VIEWER).status == 200
    assert ssl.get_server_certificate((host, int(port))) != certificate
    assert read_properties(str(browser.secure / "librdkafka.properties"))["sasl.password"] in browser.admin


def test_file_without_credentials_keeps_the_former_ones(cluster: OttlaCluster, browser: Browser) -> None:
    file: Path = browser.secure / "http.credentials"
    good = file.read_text()
    file.write_text("")
    until(lambda: "Changed files of the HTTP listener cannot be used" in cluster.log_text(0), DEADLINE_S)
    assert browser.ask(OVERVIEW, browser.admin).status == 200
    file.write_text(good)
