"""Hooks of the site's build: the navigation lists the pages that exist."""

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Remove pages without a file from the navigation, and append pages that it does not name, under "More"."""
    folder = Path(config["docs_dir"])
    named: set[str] = set()
    config["nav"] = [present for entry in config["nav"] if (present := _present(entry, folder, named)) is not None]
    pages = {str(path.relative_to(folder)) for path in folder.rglob("*.md") if "examples" not in path.parts}
    if more := sorted(pages - named):
        config["nav"].append({"More": more})
    return config


def _present(entry: dict[str, Any], folder: Path, named: set[str]) -> dict[str, Any] | None:
    ((title, target),) = entry.items()
    if isinstance(target, str):
        named.add(target)
        return entry if (folder / target).exists() else None
    kept = [present for each in target if (present := _present(each, folder, named)) is not None]
    return {title: kept} if kept else None
