"""A log of bounded size, also on a full disk."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from broker.bounded_log import BoundedLog


@pytest.fixture
def log(tmp_path: Path) -> Iterator[BoundedLog]:
    with closing(BoundedLog(tmp_path / "ottla.log", max_bytes=10, kept_files=2)) as bounded:
        yield bounded


def test_output_is_appended_to_what_is_there(log: BoundedLog, tmp_path: Path) -> None:
    (tmp_path / "ottla.log").write_bytes(b"old\n")
    log.write(b"new\n")
    assert (tmp_path / "ottla.log").read_bytes() == b"old\nnew\n"


def test_full_file_is_rotated_and_old_files_are_limited(log: BoundedLog, tmp_path: Path) -> None:
    for piece in (b"first...", b"second..", b"third...", b"fourth..", b"5"):
        log.write(piece)
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert found == {"ottla.log": b"fourth..5", "ottla.log.1": b"third...", "ottla.log.2": b"second.."}


def test_output_above_the_limit_is_written_whole(log: BoundedLog, tmp_path: Path) -> None:
    log.write(b"x" * 30)
    assert (tmp_path / "ottla.log").read_bytes() == b"x" * 30


def test_dropped_output_is_counted_and_logged_later(tmp_path: Path) -> None:
    directory = tmp_path / "later"
    with closing(BoundedLog(directory / "ottla.log", max_bytes=1000)) as log:
        log.write(b"lost\n")
        log.write(b"too\n")
        directory.mkdir()
        log.write(b"kept\n")
        log.write(b"more\n")
    expected = b"(9 bytes of output could not be written here)\nkept\nmore\n"
    assert (directory / "ottla.log").read_bytes() == expected
