"""The console's page in Chromium on three brokers: what it shows is what the admin API says.

The tests run in order: actions are disabled at first, and nodes are killed at last.
"""

import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from playwright.sync_api import Browser, Locator

from broker.metadata.image.config_image import ResourceType
from protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from tests.integration.console.browser import DESKTOP, PHONE, ConsolePage, open_browser
from tests.integration.console.cluster_states import (
    ACTIONS,
    ADMIN,
    COMMITTED,
    GROUP,
    HOSTILE,
    JOBS,
    LEDGER,
    PARTITIONS,
    RECORDS,
    TIERED,
    TOPIC,
    TRANSACTION,
    VIEWER,
    ClusterStates,
    remote_settings,
    settings,
    wait_for,
)
from tests.integration.console.share_member import ShareMember
from tests.support.processes.broker_cluster import CONTROLLER_ID, BrokerCluster

pytestmark = pytest.mark.integration

VIEWS = [
    ("#/", "Overview"),
    ("#/topics", "Topics"),
    (f"#/topic/{TOPIC}", TOPIC),
    (f"#/topic/{TIERED}", TIERED),
    (f"#/topic/{TOPIC}/records", TOPIC),
    (f"#/topic/{TOPIC}/configs", TOPIC),
    ("#/groups", "Groups"),
    (f"#/group/{GROUP}", GROUP),
    ("#/transactions", "Transactions"),
    ("#/security/acls", "Security"),
    ("#/security/quotas", "Security"),
    ("#/security/users", "Security"),
    ("#/timeline", "Time line"),
    ("#/broker/1", "Broker 1"),
    ("#/broker/2", "Broker 2"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as running:
        yield running


@pytest.fixture(scope="module")
def states(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterStates]:
    directory = tmp_path_factory.mktemp("console")
    remote = dict.fromkeys((1, 2, 3), remote_settings(directory / "bucket"))
    with (
        BrokerCluster(directory, settings=settings(directory), each=remote) as cluster,
        closing(ClusterStates(cluster)) as found,
    ):
        found.fill()
        yield found


@contextmanager
def opened(
    browser: Browser,
    states: ClusterStates,
    *,
    node: int = 1,
    user: tuple[str, str] = ADMIN,
    size: tuple[int, int] = DESKTOP,
    bypass_csp: bool = False,
) -> Iterator[ConsolePage]:
    """Open the console of a node as a user."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        bypass_csp=bypass_csp,
        http_credentials={"username": user[0], "password": user[1]},
    )
    try:
        yield ConsolePage(context, f"http://127.0.0.1:{states.cluster[node].http_port}")
    finally:
        context.close()


@pytest.fixture
def console(browser: Browser, states: ClusterStates) -> Iterator[ConsolePage]:
    with opened(browser, states) as page:
        yield page


def numbers(cells: list[str]) -> list[int]:
    return [int(cell.replace(",", "")) for cell in cells]


def column(rows: list[list[str]], index: int) -> list[str]:
    return [row[index] for row in rows]


def test_console_is_read_only_until_actions_are_enabled(console: ConsolePage, states: ClusterStates) -> None:
    console.open("#/topics", "Topics")
    assert console.page.get_by_role("button", name="Create topic").count() == 0
    assert "read-only" in console.act("delete-topic", {"name": TOPIC})
    assert ("/console/api/actions/delete-topic", 403) in console.statuses
    states.alter_config(ResourceType.BROKER, "", ACTIONS, "true")
    wait_for(lambda: console.act("delete-topic", {}), lambda told: "must be a text" in told, "actions stay disabled")
    console.open("#/groups", "Groups")
    console.page.reload()
    console.page.get_by_text("actions allowed").wait_for()
    assert TOPIC in states.admin.list_topics(timeout=60).topics


def test_overview_shows_brokers_and_quorum(console: ConsolePage, states: ClusterStates) -> None:
    console.open("", "Overview")
    rows = console.table("Brokers with load")
    assert [row[0].split()[0] for row in rows] == ["1", "2", "3"]
    assert column(rows, 1) == ["running"] * 3
    partitions = sum(len(topic.partitions) for topic in states.admin.list_topics(timeout=60).topics.values())
    assert sum(numbers(column(rows, 2))) == partitions
    assert sum(numbers(column(rows, 3))) == partitions * 3
    quorum = console.table("Replicas of the metadata log")
    assert [row[0].split() for row in quorum] == [
        [str(CONTROLLER_ID), "leader"],
        ["1", "observer"],
        ["2", "observer"],
        ["3", "observer"],
    ]
    console.page.get_by_text("live", exact=True).wait_for()
    console.page.get_by_text(f"broker (all brokers): {ACTIONS} set to true").first.wait_for()
    assert console.complaints == []


def test_partitions_are_those_of_the_admin_api(console: ConsolePage, states: ClusterStates) -> None:
    console.open(f"#/topic/{TOPIC}", TOPIC)
    rows = console.table(f"{PARTITIONS} partitions")
    leaders = states.leaders(TOPIC)
    assert [int(row[1].split()[0]) for row in rows] == [leader for leader, _ in leaders]
    assert [sorted(map(int, row[2].split())) for row in rows] == [isr for _, isr in leaders]
    assert numbers(column(rows, 4)) == states.ends(TOPIC, PARTITIONS)


def test_records_are_shown_as_json_text_and_hex(console: ConsolePage, states: ClusterStates) -> None:
    console.open(f"#/topic/{TOPIC}/records?partition=1&from=START", TOPIC)
    page = console.page
    page.get_by_label("value at offset 0", exact=True).wait_for()
    shown = page.get_by_label("value at offset 0", exact=True)
    assert shown.inner_text() == '{\n  "number": 1,\n  "note": "round 1"\n}'
    page.get_by_label("Show as").select_option("hex")
    assert shown.inner_text().startswith("7b 22 6e 75")
    page.get_by_label("Show as").select_option("text")
    assert shown.inner_text() == '{"number": 1, "note": "round 1"}'
    page.get_by_role("button", name="Later").click()
    page.get_by_label("value at offset 50", exact=True).wait_for()
    page.get_by_role("button", name="Earlier").click()
    page.get_by_label("value at offset 49", exact=True).wait_for()
    assert page.locator("article").count() == 50
    assert console.complaints == []


def test_text_of_clients_is_never_markup(console: ConsolePage, states: ClusterStates) -> None:
    console.open(f"#/topic/{TOPIC}/records?partition=0", TOPIC)
    last = states.ends(TOPIC, PARTITIONS)[0] - 1
    console.page.get_by_label(f"value at offset {last}", exact=True).wait_for()
    article = console.page.locator("article").last
    assert article.locator("pre").inner_text() == HOSTILE
    article.locator("summary").click()
    assert article.get_by_text(f"{HOSTILE}: {HOSTILE}").count() == 1
    for path, heading in (("groups", "Groups"), ("security/acls", "Security"), ("security/quotas", "Security")):
        console.open(f"#/{path}", heading)
        console.page.get_by_text(HOSTILE).first.wait_for()
        assert console.page.locator("main img").count() == 0
    console.open("#/groups", "Groups")
    console.page.get_by_role("link", name=HOSTILE).click()
    console.page.get_by_role("heading", level=1, name=HOSTILE).wait_for()
    assert console.page.title() == f"{HOSTILE} · Ottla"
    assert console.complaints == []


def test_half_tiered_topic_has_local_and_remote_offsets(console: ConsolePage, states: ClusterStates) -> None:
    console.open(f"#/topic/{TIERED}", TIERED)
    bar = console.page.locator("svg.bar")
    bar.wait_for()

    def label() -> str:
        return bar.get_attribute("aria-label") or ""

    def later_label() -> str:
        console.page.wait_for_timeout(100)
        return label()

    text = wait_for(
        later_label,
        lambda found: "remote: offsets 0 to" in found and "local: offsets 0 to" not in found,
        "no part of the topic is remote alone",
    )
    end = states.ends(TIERED, 1)[0]
    assert f"to {end - 1}" in text.split(";")[0]
    console.page.locator("summary", has_text="remote segments").click()
    segments = console.table("Newest remote segments of partition 0")
    assert min(numbers(column(segments, 0))) == 0
    assert set(column(segments, 4)) == {"copy finished"}
    console.open(f"#/topic/{TIERED}/records?from=START", TIERED)
    console.page.get_by_label("value at offset 0", exact=True).wait_for()


def test_lag_of_a_group_is_that_of_the_admin_api(console: ConsolePage, states: ClusterStates) -> None:
    console.open(f"#/group/{GROUP}", GROUP)
    lags = [str(lag) for lag in states.lag(GROUP)]
    console.until(lambda: column(console.table("lag"), 4), lags)
    assert numbers(column(console.table("lag"), 2)) == [COMMITTED] * PARTITIONS
    assert sum(map(int, lags)) == RECORDS + 1 - COMMITTED * PARTITIONS
    states.commit(GROUP, COMMITTED + 50)
    lags = [str(lag) for lag in states.lag(GROUP)]
    console.until(lambda: column(console.table("lag"), 4), lags)
    console.page.get_by_role("img", name=f"lag of {TOPIC}-0:").wait_for()
    console.page.get_by_role("img", name="Lag:").wait_for()
    console.page.get_by_role("button", name="Lag", exact=True).click()
    console.until(lambda: column(console.table("lag"), 4), sorted(lags))


def test_view_whose_first_load_fails_appears_later(console: ConsolePage, states: ClusterStates) -> None:
    group = "latecomers"
    console.open(f"#/group/{group}", group)
    console.page.locator(".notice.bad").wait_for()
    states.commit(group, 1)
    console.until(lambda: column(console.table("lag"), 2), ["1"] * PARTITIONS)
    assert not console.page.locator(".notice.bad").is_visible()


def test_share_group_has_records_in_delivery(console: ConsolePage, states: ClusterStates) -> None:
    group = "workers"
    states.alter_config(ResourceType.GROUP, group, "share.auto.offset.reset", "earliest")
    states.alter_config(ResourceType.GROUP, group, "share.record.lock.duration.ms", "60000")
    member = ShareMember(states.client, group, JOBS)
    member.join()
    states.produce(JOBS, 10)
    ((first, last, _),) = wait_for(lambda: member.acquire(5), bool, "no record was acquired")
    count = last - first + 1
    console.open(f"#/group/{group}", group)
    console.until(lambda: [row[6:9] for row in console.table("lag")], [[str(count), str(count), "1"]])
    ((again, _, deliveries),) = member.acquire(count, (first, last))
    assert (again, deliveries) == (first, 2)
    console.until(lambda: [row[8] for row in console.table("lag")], ["2"])
    asked = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, None)])
    answer = states.client.coordinator(group).call(asked, DescribeShareGroupOffsetsResponse)
    (found,) = answer.groups[0].topics[0].partitions
    console.until(
        lambda: [(row[0], row[2], row[4]) for row in console.table("lag")],
        [(JOBS, str(found.start_offset), str(found.lag))],
    )
    assert console.table("1 member")[0][3] == f"{JOBS}: 0"


def test_open_transaction_has_state_age_and_partitions(console: ConsolePage, states: ClusterStates) -> None:
    console.open("#/transactions", "Transactions")
    (row,) = console.table("1 transactional id")
    coordinator = states.client.coordinator(TRANSACTION, kind=1)
    answer = coordinator.call(DescribeTransactionsRequest([TRANSACTION]), DescribeTransactionsResponse)
    (found,) = answer.transaction_states
    assert row[0:2] == [found.transactional_id, found.transaction_state]
    assert row[3:5] == ["10 min 0 s", f"{found.producer_id}, epoch {found.producer_epoch}"]
    assert row[6] == f"{LEDGER}: 0, 1"
    assert found.transaction_timeout_ms == 600_000
    age = row[2]
    assert age.endswith(" s")
    wait_for(lambda: console.table("1 transactional id")[0][2], lambda now: now != age, "the age does not grow")


def test_security_views_are_those_of_the_admin_api(console: ConsolePage, states: ClusterStates) -> None:
    console.open("#/security/acls", "Security")
    rows = console.table("2 ACLs")
    everything = DescribeAclsRequest(1, None, 1, None, None, 1, 1)
    resources = states.client.call(everything, DescribeAclsResponse).resources
    wanted = [(acl.principal, each.resource_name) for each in resources for acl in each.acls]
    assert sorted((row[0], row[3].split()[1]) for row in rows) == sorted(wanted)
    assert sorted(row[1] for row in rows) == ["allow", "deny"]
    assert {row[0]: row[2] for row in rows}[f"User:{VIEWER[0]}"] == "describe"
    console.open("#/security/quotas", "Security")
    entries = states.client.call(DescribeClientQuotasRequest(), DescribeClientQuotasResponse).entries
    assert entries is not None
    names = [part.entity_name or "default" for entry in entries for part in entry.entity]
    assert sorted(column(console.table("Quotas"), 0)) == sorted(f"user {name}" for name in names)
    assert set(column(console.table("Quotas"), 1)) == {"producer_byte_rate 1 MB/s"}
    console.open("#/security/users", "Security")
    assert console.table("1 Users") == [["carol", "SCRAM-SHA-512, 4,096 iterations"]]


def test_viewer_sees_only_the_topic_that_it_may_describe(browser: Browser, states: ClusterStates) -> None:
    with opened(browser, states, node=2, user=VIEWER) as console:
        page = console.page
        console.open("#/topics", "Topics")
        console.until(lambda: column(console.table("topic"), 0), [TOPIC])
        page.get_by_text("not live").wait_for()
        console.open(f"#/topic/{TOPIC}", TOPIC)
        assert len(console.table(f"{PARTITIONS} partitions")) == PARTITIONS
        for path, sentence in (
            ("", "not authorized to describe the cluster"),
            (f"topic/{TIERED}", "does not exist, or User:viewer may not describe it"),
            (f"topic/{TOPIC}/records", "not authorized to read topic"),
            (f"topic/{TOPIC}/configs", "TOPIC_AUTHORIZATION_FAILED"),
            (f"group/{GROUP}", "does not exist, or User:viewer may not describe it"),
            ("security/acls", "not authorized to describe ACLs"),
            ("security/quotas", "not authorized to describe client quotas"),
            ("security/users", "not authorized to describe users"),
            ("timeline", "not authorized to describe the cluster"),
            ("broker/1", "not authorized to describe configs of broker 1"),
        ):
            page.goto(f"{console.base}/#/{path}")
            page.get_by_text(sentence).first.wait_for()
        for path, empty in (("groups", "No groups match."), ("transactions", "No transaction is open.")):
            page.goto(f"{console.base}/#/{path}")
            page.get_by_text(empty).wait_for()
        assert "TOPIC_AUTHORIZATION_FAILED" in console.act("delete-topic", {"name": TOPIC})
        assert "not authorized" in console.act("reset-offsets", {"group": GROUP, "topic": TOPIC, "to": "earliest"})
        assert ("/console/api/events", 403) not in console.statuses  # the page does not ask for what it may not see


def test_console_needs_the_credentials(browser: Browser, states: ClusterStates) -> None:
    with opened(browser, states, user=("admin", "wrong")) as console:
        response = console.page.goto(f"{console.base}/")
        assert response is not None
        assert response.status == 401


def test_configs_of_any_broker_are_shown_by_every_node(console: ConsolePage, states: ClusterStates) -> None:
    for id in (1, 2):
        console.open(f"#/broker/{id}", f"Broker {id}")
        rows = console.table("configs")
        values = {row[0].split()[0]: row[1] for row in rows}
        assert values["node.id"] == str(id)
        assert values["listeners"] == states.cluster[id].settings["listeners"]


def test_actions_ask_and_report(console: ConsolePage, states: ClusterStates) -> None:
    console.open("#/topics", "Topics")
    page = console.page
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name").fill("made-here")
    page.get_by_label("Partitions (-1: the default)").fill("2")
    page.get_by_label("Configs").fill("retention.ms=1000000")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_text('Topic "made-here" is created.').wait_for()
    wait_for(  # the asked broker may learn of the topic later than the one that reports the creation
        lambda: len(states.admin.list_topics("made-here", 60).topics["made-here"].partitions),
        lambda count: count == 2,
        "creation",
    )
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name").fill("made-here")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_text("already exists").wait_for()
    page.get_by_role("button", name="Cancel").click()
    console.open("#/topic/made-here", "made-here")
    page.get_by_role("button", name="Delete topic").click()
    page.get_by_label("Type the topic's name").fill("made-here")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("heading", level=1, name="Topics").wait_for()
    wait_for(lambda: states.admin.list_topics(timeout=60).topics, lambda topics: "made-here" not in topics, "deletion")


def find_change(console: ConsolePage, sentence: str) -> Locator:
    """Return the newest change with the sentence on the time line; ask for earlier changes until it shows."""
    console.open("#/timeline", "Time line")
    shown = console.page.locator("ol.changes li")
    shown.first.wait_for()
    change = console.page.locator("ol.changes li", has_text=sentence)
    while change.count() == 0:
        before = shown.count()
        console.page.get_by_role("button", name="Earlier changes").click()
        shown.nth(before).wait_for()
    return change.first


def test_time_line_goes_back_to_before_a_topic(console: ConsolePage, states: ClusterStates) -> None:
    change = find_change(console, f"topic {TOPIC}: created")
    offset = int(change.locator("a").inner_text().removeprefix("@"))
    console.open(f"#/timeline/{offset - 1}", "Time line")
    rows = console.table("differences to now")
    assert f"topic {TOPIC}: created with {PARTITIONS} partitions, replication factor 3" in column(rows, 0)
    console.page.get_by_text(re.compile("topics? at offset|No topics match")).first.wait_for()
    assert TOPIC not in console.page.get_by_role("region", name="Topics then").inner_text().split()


def test_keyboard_alone_is_enough(console: ConsolePage, states: ClusterStates) -> None:
    console.open("#/topics", "Topics")
    page, keys = console.page, console.page.keyboard
    console.table("topics")
    keys.press("Tab")
    assert console.focused == "Skip to content"
    keys.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    keys.press("/")
    assert page.evaluate("document.activeElement.type") == "search"
    keys.type("arch")
    console.until(lambda: column(console.table("1 topic"), 0), [TIERED])
    page.get_by_role("button", name="Partitions").press("Enter")
    page.get_by_role("columnheader", name="Partitions ↑").wait_for()
    assert console.focused.startswith("Partitions")  # the table is new, the focus is where it was
    page.get_by_role("button", name="Create topic").press("Enter")
    page.get_by_role("dialog").wait_for()
    assert page.evaluate("document.activeElement.name") == "name"
    keys.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    assert console.focused == "Create topic"
    page.get_by_role("link", name=TIERED).press("Enter")
    page.get_by_role("heading", level=1, name=TIERED).wait_for()
    assert page.evaluate("document.activeElement.tagName") == "H1"
    console.open("#/timeline", "Time line")
    slider = page.get_by_label("Offset of the metadata log")
    at = int(slider.input_value())
    slider.press("ArrowLeft")
    page.get_by_text(f"Offset {at - 1:,} of").wait_for()


def test_no_view_has_accessibility_violations(browser: Browser, states: ClusterStates) -> None:
    """Check all rules in light colours, and the contrast in dark ones: the other rules do not depend on colours."""
    found = {}
    with opened(browser, states, bypass_csp=True) as console:
        for path, heading in VIEWS:
            console.page.emulate_media(color_scheme="light")
            console.open(path, heading)
            console.page.get_by_text("Loading …").wait_for(state="detached")
            found[path] = console.violations()
            console.page.emulate_media(color_scheme="dark")
            found[f"{path} dark"] = console.violations("color-contrast")
        console.open("#/topics", "Topics")
        console.page.get_by_role("button", name="Create topic").click()
        found["dialog dark"] = console.violations()
    assert {path: each for path, each in found.items() if each} == {}


def test_phone_has_no_sideways_scroll(browser: Browser, states: ClusterStates) -> None:
    widths = {}
    with opened(browser, states, node=2, size=PHONE) as console:
        for path, heading in VIEWS:
            console.open(path, heading)
            console.page.get_by_text("Loading …").wait_for(state="detached")
            widths[path] = console.width
        assert console.complaints == []
    assert widths == dict.fromkeys(widths, PHONE[0])


def test_killed_broker_is_shown_as_fenced(console: ConsolePage, states: ClusterStates) -> None:
    console.open("", "Overview")
    console.table("Brokers with load")
    states.cluster[3].kill()
    console.until(lambda: column(console.table("Brokers with load"), 1), ["running", "running", "fenced"])
    console.page.get_by_text("Broker 3: the broker is fenced.").wait_for()
    find_change(console, "broker 3: running → fenced")
    console.open(f"#/topic/{TOPIC}", TOPIC)
    leaders = states.leaders(TOPIC)
    rows = console.table(f"{PARTITIONS} partitions")
    assert [int(row[1].split()[0]) for row in rows] == [leader for leader, _ in leaders]
    assert all("3 out" in row[2] for row in rows)
    console.open("#/broker/3", "Broker 3")
    console.page.get_by_text("Another node does not answer").wait_for()


def test_lost_connection_is_told(console: ConsolePage, states: ClusterStates) -> None:
    console.open("", "Overview")
    console.page.get_by_text("live", exact=True).wait_for()
    states.cluster[1].kill()
    console.page.get_by_text("no connection since").wait_for()


def test_node_is_not_ready_without_an_active_controller(states: ClusterStates) -> None:
    node = states.cluster[2]
    assert node.http("/health/ready")[0] == 200
    states.cluster.controller.kill()
    status, body = wait_for(lambda: node.http("/health/ready"), lambda answer: answer[0] != 200, "the node stays ready")
    assert (status, json.loads(body)["reason"]) == (503, "no active controller is known")
    assert node.http("/health/live")[0] == 200
