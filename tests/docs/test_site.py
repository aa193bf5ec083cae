"""The site that MkDocs builds from `docs/`: no broken links, nothing loaded from another host, and its navigation."""

import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LOADING = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
REMOTE = ("http:", "https:", "//")


class LoadedAssets(HTMLParser):
    """Addresses that a browser loads together with a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag in LOADING and found.get("rel") != "canonical":
            self.addresses.append(found.get(LOADING[tag]) or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = [path.relative_to(DOCS) for path in DOCS.rglob("*.md") if "examples" not in path.parts]
    built = [site / path.parent / ("index.html" if path.stem == "README" else f"{path.stem}.html") for path in pages]
    assert pages
    assert [str(path) for path in built if not path.exists()] == []


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    checked, remote = 0, []
    for path in site.rglob("*.html"):
        parser = LoadedAssets()
        parser.feed(path.read_text())
        checked += len(parser.addresses)
        remote += [f"{path.name}: {address}" for address in parser.addresses if address.startswith(REMOTE)]
    assert checked > 10
    assert remote == []


def test_stylesheets_load_nothing_from_other_hosts(site: Path) -> None:
    sheets = list(site.rglob("*.css"))
    assert sheets
    assert [
        path.name for path in sheets for start in REMOTE if f"url({start}" in path.read_text().replace('"', "")
    ] == []


def test_every_page_is_in_the_navigation(site: Path) -> None:
    start = (site / "index.html").read_text()
    pages = [path.relative_to(site) for path in site.rglob("*.html") if path.name != "404.html"]
    assert len(pages) > 5
    assert [str(page) for page in pages if page.name != "index.html" and f'href="{page}"' not in start] == []
