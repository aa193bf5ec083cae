"""The commit that `ottla --version` prints."""

import subprocess
from pathlib import Path

from broker.build_commit import UNKNOWN, build_commit


def _git(root: Path, *arguments: str) -> str:
    author = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    command = ["git", "-C", str(root), *author, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_recorded_commit_comes_first(tmp_path: Path) -> None:
    record = tmp_path / "COMMIT"
    record.write_text("0123456789ab\n")
    assert build_commit(record) == "0123456789ab"


def test_checkout_names_its_commit_and_marks_changes(tmp_path: Path) -> None:
    source = tmp_path / "broker" / "source.py"
    source.parent.mkdir()
    source.write_text("x = 1\n")
    _git(tmp_path, "init", "--quiet")
    _git(tmp_path, "add", "--all")
    _git(tmp_path, "commit", "--quiet", "--message", "Sources")
    _git(tmp_path, "tag", "v9")
    record = source.with_name("COMMIT")
    head = _git(tmp_path, "rev-parse", "--short=12", "HEAD")
    assert build_commit(record) == head
    source.write_text("x = 2\n")
    assert build_commit(record) == f"{head}-dirty"


def test_commit_is_unknown_outside_a_checkout(tmp_path: Path) -> None:
    assert build_commit(tmp_path / "broker" / "COMMIT") == UNKNOWN
