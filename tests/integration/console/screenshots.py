"""`python -m tests.integration.console.screenshots`: pictures of the console for docs/images.

States: a cluster with a lagging group, a half-tiered topic, and a killed broker; light and dark, desktop and phone.
"""

import tempfile
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, Literal

import confluent_kafka
from playwright.sync_api import Browser

from tests.integration.console.browser import DESKTOP, PHONE, ConsolePage, open_browser
from tests.integration.console.cluster_states import (
    ADMIN,
    GROUP,
    TIERED,
    TOPIC,
    ClusterStates,
    remote_settings,
    settings,
)
from tests.support.kafka.apache_kafka import REPOSITORY
from tests.support.processes.broker_cluster import BrokerCluster

IMAGES: Final = REPOSITORY / "docs" / "images"
LOADED_MS: Final = 20_000
"""Time under load before the first picture, so that the plots have curves."""
DRAWN_MS: Final = 1_500


def main() -> None:
    """Write the pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory, open_browser() as browser:
        remote = remote_settings(Path(directory) / "bucket")
        each = {id: {**remote, "broker.rack": f"zone-{id}"} for id in (1, 2, 3)}
        with BrokerCluster(Path(directory), settings=settings(Path(directory)), each=each) as cluster:
            is_over = threading.Event()
            with closing(ClusterStates(cluster)) as states:
                states.fill()
            load = threading.Thread(target=_produce, args=(cluster.bootstrap, is_over))
            load.start()
            try:
                _draw(browser, cluster)
            finally:
                is_over.set()
                load.join()


def _produce(bootstrap: str, is_over: threading.Event) -> None:
    """Write records at a rate that goes up and down."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    number = 0
    while not is_over.wait(0.1):
        for _ in range(20 + number % 60 * 4):
            producer.produce(TOPIC, f'{{"order": {number}, "state": "paid", "cents": {number * 37 % 9_999}}}')
        number += 1
        producer.poll(0)
    producer.flush(5)


def _draw(browser: Browser, cluster: BrokerCluster) -> None:
    base = f"http://127.0.0.1:{cluster[1].http_port}"
    _shoot(browser, base, "#/", "Overview", "overview", wait_ms=LOADED_MS)
    _shoot(browser, base, f"#/group/{GROUP}", GROUP, "lagging-group", wait_ms=LOADED_MS // 2)
    _shoot(browser, base, f"#/topic/{TIERED}", TIERED, "half-tiered-topic")
    _shoot(browser, base, f"#/topic/{TOPIC}/records", TOPIC, "records", schemes=("light",))
    cluster[3].kill()
    _shoot(browser, base, "#/", "Overview", "killed-broker", wait_ms=LOADED_MS // 2)
    _shoot(browser, base, "#/timeline", "Time line", "time-line", schemes=("light",))


def _shoot(
    browser: Browser,
    base: str,
    path: str,
    heading: str,
    name: str,
    *,
    wait_ms: int = DRAWN_MS,
    schemes: Sequence[Literal["light", "dark"]] = ("light", "dark"),
) -> None:
    for scheme in schemes:
        for device, (width, height) in (("desktop", DESKTOP), ("phone", PHONE)):
            if device == "phone" and len(schemes) == 1:
                continue
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=scheme,
                http_credentials={"username": ADMIN[0], "password": ADMIN[1]},
            )
            console = ConsolePage(context, base)
            console.open(path, heading)
            console.page.wait_for_timeout(wait_ms)
            console.page.screenshot(path=IMAGES / f"console-{name}-{scheme}-{device}.png")
            context.close()
            wait_ms = DRAWN_MS * 2


if __name__ == "__main__":
    main()
