"""Chromium without a screen, that refuses everything but the console's own address, and notes all complaints."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response, sync_playwright

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
# Chromium refuses port 10080, which a node may have.
SWITCHES: Final = ("--no-sandbox", "--disable-dev-shm-usage", "--explicitly-allowed-ports=10080")
LIMIT_MS: Final = 90_000
PHONE: Final = (390, 844)
DESKTOP: Final = (1280, 800)


def program() -> str:
    """Return the browser's path; skip the test without one."""
    found = os.environ.get("OTTLA_CHROMIUM") or next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium; install it (Debian: `apt-get install chromium`), or name its path in OTTLA_CHROMIUM")
    return found


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Run a browser."""
    path = program()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=SWITCHES)
        try:
            yield browser
        finally:
            browser.close()


class ConsolePage:
    """The console in one tab. `complaints` has errors of scripts and of the content-security policy, failed requests,
    and requests to another address.
    """

    def __init__(self, context: BrowserContext, base: str) -> None:
        self.base = base
        self.complaints: list[str] = []
        self.statuses: list[tuple[str, int]] = []
        self.page: Page = context.new_page()
        self.page.set_default_timeout(LIMIT_MS)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._on_request)
        self.page.on("response", self._on_response)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.base, "data:")):
            self.complaints.append(f"request to {request.url}")

    def _on_response(self, response: Response) -> None:
        self.statuses.append((response.url.removeprefix(self.base), response.status))

    def open(self, path: str, heading: str) -> None:
        """Open a view and wait for its heading."""
        self.page.goto(f"{self.base}/{path}")
        self.page.get_by_role("heading", level=1, name=heading).wait_for()

    def table(self, caption: str) -> list[list[str]]:
        """Return the cells of the table whose caption contains a text, once it is there."""
        place = self.page.locator("caption", has_text=caption).last
        rows: list[list[str]] | None = None
        while rows is None:  # a live update replaced the table in the meantime
            place.wait_for()
            rows = place.evaluate(
                "caption => caption.isConnected ? [...caption.parentElement.tBodies[0].rows]"
                ".map(row => [...row.cells].map(cell => cell.innerText.trim())) : null"
            )
        return rows

    def until(self, read: Callable[[], object], wanted: object) -> None:
        """Wait until `read` returns `wanted`. Raise AssertionError after `LIMIT_MS`."""
        for _ in range(LIMIT_MS // 100):
            if read() == wanted:
                return
            self.page.wait_for_timeout(100)
        assert read() == wanted

    def violations(self, *rules: str) -> list[str]:
        """Return what axe finds wrong on the page, by all rules or by these."""
        found = Axe().run(self.page, options={"runOnly": list(rules)} if rules else None)
        return [
            f"{each['id']}: {[node['html'][:150] for node in each['nodes']]}" for each in found.response["violations"]
        ]

    @property
    def focused(self) -> str:
        """The text or the label of the control that has the focus."""
        return str(
            self.page.evaluate(
                "(document.activeElement.getAttribute('aria-label') || document.activeElement.innerText || '').trim()"
            )
        )

    def act(self, action: str, body: dict[str, object]) -> str:
        """Run an action as the page does; return the sentence of its success or refusal."""
        return str(
            self.page.evaluate(
                "async ([action, body]) => {"
                "  const api = await import('/console/api.js');"
                "  try { return (await api.act(action, body)).message; } catch (error) { return error.message; }"
                "}",
                [action, body],
            )
        )

    @property
    def width(self) -> int:
        """The width of the content in CSS pixels."""
        return int(self.page.evaluate("document.documentElement.scrollWidth"))
