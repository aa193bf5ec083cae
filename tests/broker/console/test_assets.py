"""The files of the page."""

import re

import pytest

from broker.console.assets import SECURITY_HEADERS, Assets
from broker.http.messages import HttpRequest

ASSETS = Assets()
POLICY = dict(SECURITY_HEADERS)["Content-Security-Policy"]


def test_page_is_served_with_an_entity_tag() -> None:
    first = ASSETS.answer("index.html", HttpRequest("/"))
    headers = dict(first.headers)
    assert (first.status, first.content_type) == (200, "text/html; charset=utf-8")
    again = ASSETS.answer("index.html", HttpRequest("/", headers={"if-none-match": headers["ETag"]}))
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("name", ["", "nothing.js", "../service.py", "..%2fservice.py", "assets.py"])
def test_other_files_are_not_served(name: str) -> None:
    assert ASSETS.answer(name, HttpRequest("/console/" + name)).status == 404


def test_policy_allows_nothing_inline_and_no_other_host() -> None:
    directives = {
        name: set(sources.split()) for name, _, sources in (d.strip().partition(" ") for d in POLICY.split(";"))
    }
    assert directives["default-src"] == {"'none'"}
    sources = set().union(*directives.values())
    assert sources == {"'none'", "'self'", "'script'"}
    assert directives["require-trusted-types-for"] == {"'script'"}
    assert directives["frame-ancestors"] == {"'none'"}


def test_page_has_neither_inline_code_nor_markup_from_text() -> None:
    page = ASSETS.answer("index.html", HttpRequest("/")).body.decode()
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", page)
    names = re.findall(r'(?:src|href)="/console/([\w.]+)"', page)
    modules = [name for name in names if name.endswith(".js")]
    while modules:  # all modules that the page loads
        text = ASSETS.answer(modules.pop(), HttpRequest("/")).body.decode()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text)
        found = [name for name in re.findall(r'from "\./([\w.]+)"', text) if name not in names]
        names += found
        modules += found
    assert len(names) >= 10


def test_files_name_no_other_host() -> None:
    for name in ("index.html", "style.css", "app.js", "api.js", "dom.js", "overview.js"):
        text = ASSETS.answer(name, HttpRequest("/")).body.decode()
        assert set(re.findall(r"https?://[^\s\"')]+", text)) <= {"http://www.w3.org/2000/svg"}
