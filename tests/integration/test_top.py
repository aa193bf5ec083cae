"""`ottla top` on a pseudo terminal, and one frame to a pipe."""

import contextlib
import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.support.processes.ottla_node import OttlaNode, clean_environment, run_ottla

pytestmark = pytest.mark.integration

DEADLINE_S = 60
LEAVE_SCREEN = b"\x1b[?1049l"


class TopTerminal:
    """`ottla top` as a process on a terminal of 110 by 24 characters, whatever COLUMNS is here."""

    def __init__(self, bootstrap: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 110, 0, 0))
        command = [sys.executable, "-m", "broker", "top", "--bootstrap-server", bootstrap, "--interval", "0.5"]
        environment = {**clean_environment(), "TERM": "xterm-256color"}
        for name in ("COLUMNS", "LINES"):
            environment.pop(name, None)
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        self.output = b""

    def press(self, key: str) -> None:
        os.write(self._master, key.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def wait_for(self, text: bytes) -> None:
        """Read until `text` appears after what was read before."""
        deadline, since = time.monotonic() + DEADLINE_S, len(self.output)
        while text not in self.output[since:]:
            assert time.monotonic() < deadline, self.output[-2000:]
            if select.select([self._master], [], [], 1)[0]:
                self.output += os.read(self._master, 65_536)


def test_top_draws_sorts_and_quits_on_a_terminal(tmp_path: Path) -> None:
    with OttlaNode(tmp_path / "node") as node:
        document = json.loads(run_ottla("top", "--bootstrap-server", node.bootstrap, "--once", "--json").stdout)
        assert [(row["id"], row["state"]) for row in document["brokers"]] == [(1, "running")]
        assert document["brokers"][0]["requests"] is not None
        assert document["leaderId"] == 1

        refused = run_ottla("top", "--bootstrap-server", node.bootstrap, check=False)
        assert (refused.returncode, "use --once" in refused.stderr) == (1, True)

        with contextlib.closing(TopTerminal(node.bootstrap)) as terminal:
            terminal.wait_for(b"BROKERS")
            terminal.press("s")
            terminal.wait_for(b"sorted by out")
            terminal.press("q")
            terminal.wait_for(LEAVE_SCREEN)
            assert terminal.process.wait(DEADLINE_S) == 0
