"""ProgressBar of long work, on a pseudo-terminal and in a pipe."""

import os
import pty
import subprocess
import sys

import pytest

PROGRAM = """
import click
from broker.cli.shared.progress import ProgressBar, with_progress
with ProgressBar("records", 3) as progress:
    for each in range(3):
        progress.advance()
        click.echo(f"line {each}")
assert list(with_progress([1, 2], "partitions")) == [1, 2]
"""


def run_program(stdout: int, stderr: int) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], stdout=stdout, stderr=stderr, env=environment, check=True, timeout=120
    )


def read_terminal(primary: int) -> str:
    output = b""
    while True:
        try:
            chunk = os.read(primary, 65536)
        except OSError:  # the end of a pseudo-terminal
            break
        if not chunk:
            break
        output += chunk
    return output.decode()


def test_pipes_get_no_progress() -> None:
    done = run_program(subprocess.PIPE, subprocess.PIPE)
    assert (done.stdout, done.stderr) == (b"line 0\nline 1\nline 2\n", b"")


@pytest.mark.parametrize("output_is_piped", [True, False])
def test_terminal_shows_a_bar_and_the_lines_of_the_command(output_is_piped: bool) -> None:
    primary, terminal = pty.openpty()
    try:
        done = run_program(subprocess.PIPE if output_is_piped else terminal, terminal)
    finally:
        os.close(terminal)
    shown = read_terminal(primary)
    os.close(primary)
    assert "records" in shown
    assert "partitions" in shown
    assert "3/3" in shown
    if output_is_piped:
        assert done.stdout == b"line 0\nline 1\nline 2\n"
        assert "line 0" not in shown
    else:
        assert "line 0" in shown
