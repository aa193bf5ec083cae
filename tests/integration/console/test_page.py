"""The console's page in Chromium on three brokers: what it shows is what the admin API says.

The tests run in order: a half-tiered topic and a lagging group first, a killed broker last.
"""

from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser

from tests.integration.console.browser import DESKTOP, PHONE, ConsolePage, open_browser
from tests.integration.console.cluster_states import (
    COMMITTED,
    GROUP,
    HOSTILE,
    PARTITIONS,
    RECORDS,
    SETTINGS,
    TIERED,
    TOPIC,
    ClusterStates,
    remote_settings,
    wait_for,
)
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
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as running:
        yield running


@pytest.fixture(scope="module")
def states(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterStates]:
    directory = tmp_path_factory.mktemp("console")
    remote = dict.fromkeys((1, 2, 3), remote_settings(directory / "bucket"))
    with BrokerCluster(directory, settings=SETTINGS, each=remote) as cluster:
        found = ClusterStates(cluster)
        found.fill()
        yield found


@pytest.fixture
def console(browser: Browser, states: ClusterStates) -> Iterator[ConsolePage]:
    width, height = DESKTOP
    context = browser.new_context(viewport={"width": width, "height": height}, bypass_csp=False)
    try:
        yield ConsolePage(context, f"http://127.0.0.1:{states.cluster[1].http_port}")
    finally:
        context.close()


def numbers(cells: list[str]) -> list[int]:
    return [int(cell.replace(",", "")) for cell in cells]


def column(rows: list[list[str]], index: int) -> list[str]:
    return [row[index] for row in rows]


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
    console.page.get_by_text(f"topic {TOPIC}: created with {PARTITIONS} partitions").first.wait_for()
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
    assert console.page.locator("main img").count() == 0
    assert console.page.title() == f"{TOPIC} · Ottla"


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
    rows = console.table("lag")
    assert numbers(column(rows, 2)) == [COMMITTED] * PARTITIONS
    assert numbers(column(rows, 4)) == states.lag(GROUP)
    assert sum(numbers(column(rows, 4))) == RECORDS + 1 - COMMITTED * PARTITIONS
    states.commit(GROUP, COMMITTED + 50)
    console.until(lambda: numbers(column(console.table("lag"), 4)), states.lag(GROUP))


def test_actions_ask_and_report(console: ConsolePage, states: ClusterStates) -> None:
    console.open("#/topics", "Topics")
    page = console.page
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name").fill("made-here")
    page.get_by_label("Partitions (-1: the default)").fill("2")
    page.get_by_label("Configs").fill("retention.ms=1000000")
    page.get_by_role("button", name="Create", exact=True).click()
    page.get_by_text('Topic "made-here" is created.').wait_for()
    assert len(states.admin.list_topics("made-here", 60).topics["made-here"].partitions) == 2
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


def test_time_line_goes_back_to_before_a_topic(console: ConsolePage, states: ClusterStates) -> None:
    console.open("#/timeline", "Time line")
    change = console.page.locator("ol.changes li", has_text=f"topic {TOPIC}: created").first
    change.wait_for()
    offset = int(change.locator("a").inner_text().removeprefix("@"))
    console.open(f"#/timeline/{offset - 1}", "Time line")
    rows = console.table("differences to now")
    assert f"topic {TOPIC}: created with {PARTITIONS} partitions, replication factor 3" in column(rows, 0)
    assert not [row for row in console.page.locator("table").last.all_inner_texts() if TOPIC in row.split()]


def test_keyboard_reaches_the_search_and_the_content(console: ConsolePage, states: ClusterStates) -> None:
    console.open("#/topics", "Topics")
    page = console.page
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"
    page.keyboard.type("arch")
    console.until(lambda: column(console.table("1 topic"), 0), [TIERED])
    page.get_by_role("link", name=TIERED).press("Enter")
    page.get_by_role("heading", level=1, name=TIERED).wait_for()
    assert page.evaluate("document.activeElement.tagName") == "H1"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_has_accessibility_violations(
    browser: Browser, states: ClusterStates, scheme: Literal["light", "dark"]
) -> None:
    width, height = DESKTOP
    base = f"http://127.0.0.1:{states.cluster[1].http_port}"
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, bypass_csp=True)
    console, found = ConsolePage(context, base), {}
    for path, heading in VIEWS:
        console.open(path, heading)
        console.page.get_by_text("Loading …").wait_for(state="detached")
        found[path] = console.violations()
    context.close()
    assert {path: each for path, each in found.items() if each} == {}


def test_phone_has_no_sideways_scroll(browser: Browser, states: ClusterStates) -> None:
    width, height = PHONE
    context = browser.new_context(viewport={"width": width, "height": height})
    console, widths = ConsolePage(context, f"http://127.0.0.1:{states.cluster[2].http_port}"), {}
    for path, heading in VIEWS:
        if path == "#/broker/1":  # the console of another broker does not know the configuration
            continue
        console.open(path, heading)
        console.page.get_by_text("Loading …").wait_for(state="detached")
        widths[path] = console.width
    context.close()
    assert set(widths.values()) == {width}
    assert console.complaints == []


def test_killed_broker_is_shown_as_fenced(console: ConsolePage, states: ClusterStates) -> None:
    console.open("", "Overview")
    console.table("Brokers with load")
    states.cluster[3].kill()
    console.until(lambda: column(console.table("Brokers with load"), 1), ["running", "running", "fenced"])
    console.page.get_by_text("Broker 3: the broker is fenced.").wait_for()
    console.page.get_by_text("broker 3: running → fenced").first.wait_for()
    console.open(f"#/topic/{TOPIC}", TOPIC)
    leaders = states.leaders(TOPIC)
    rows = console.table(f"{PARTITIONS} partitions")
    assert [int(row[1].split()[0]) for row in rows] == [leader for leader, _ in leaders]
    assert all("3 out" in row[2] for row in rows)


def test_lost_connection_is_told(console: ConsolePage, states: ClusterStates) -> None:
    console.open("", "Overview")
    console.page.get_by_text("live", exact=True).wait_for()
    states.cluster[1].kill()
    console.page.get_by_text("no connection since").wait_for()
