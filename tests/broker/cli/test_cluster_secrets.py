"""Passwords among the settings of `ottla cluster`."""

import stat
from pathlib import Path

from broker.cli.node.secret_settings import SECRETS_FILE, node_command, write_secrets


def test_command_names_a_private_file_in_place_of_passwords(tmp_path: Path) -> None:
    settings = ["node.id=1", "ssl.key.password=hunter2"]
    command = node_command(tmp_path, settings)
    assert command[-4:] == ("--override", "node.id=1", "--overrides-file", str(tmp_path / SECRETS_FILE))
    write_secrets(tmp_path, settings)
    path = tmp_path / SECRETS_FILE
    assert path.read_text() == "ssl.key.password=hunter2\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_file_of_a_former_start_is_removed(tmp_path: Path) -> None:
    (tmp_path / SECRETS_FILE).write_text("ssl.key.password=old\n")
    write_secrets(tmp_path, ["node.id=1"])
    assert not (tmp_path / SECRETS_FILE).exists()
    assert "--overrides-file" not in node_command(tmp_path, ["node.id=1"])
