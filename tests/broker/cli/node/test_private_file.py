"""Files that only their owner may read."""

import stat
from pathlib import Path

from broker.cli.node.private_file import make_private_directory, properties_text, write_private
from broker.config.load import read_properties


def test_file_is_private_also_when_it_replaces_an_open_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_directory_loses_the_rights_of_others(tmp_path: Path) -> None:
    make_private_directory(tmp_path / "a")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_properties_are_read_back(tmp_path: Path) -> None:
    settings = {"sasl.jaas.config": ' a "b\\c" = d;', "ö": "line\nline", "empty": ""}
    (tmp_path / "p").write_text(properties_text(settings))
    assert read_properties(str(tmp_path / "p")) == settings
