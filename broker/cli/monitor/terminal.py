"""The live view: a thread asks the cluster, this thread draws and reads keys. Restores the terminal in the end."""

import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from broker.cli.monitor.figures import ORDERS, Figures
from broker.cli.monitor.screen import KEYS, frame

KEY_WAIT_S: Final = 0.1

Ask = Callable[[str], Figures]
"""Returns the figures in one of ORDERS. Raises an exception that ends the view."""


class LiveView:
    """Draws frames until `q`. `s` changes the order, `p` pauses."""

    def __init__(self, ask: Ask, interval_s: float, order: str) -> None:
        self._ask = ask
        self._interval_s = interval_s
        self._order = order
        self._latest: Figures | None = None
        self._failure: BaseException | None = None
        self._is_paused = False
        self._stopped = threading.Event()
        self._wanted = threading.Event()

    def run(self) -> None:
        """Draw until the user quits. Raises the failure of `ask`."""
        worker = threading.Thread(target=self._work, daemon=True)
        worker.start()
        console = Console()
        drawn: tuple[object, ...] = ()
        try:
            with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
                while self._failure is None:
                    key = _read_key(KEY_WAIT_S)
                    if key in ("q", "Q", "\x03", "\x04"):
                        break
                    self._on_key(key)
                    state = (self._latest, console.size, self._is_paused, self._order)
                    if state != drawn:
                        drawn = state
                        live.update(self._draw(console), refresh=True)
        except KeyboardInterrupt:
            pass
        finally:
            self._stopped.set()
            self._wanted.set()
        if self._failure is not None:
            raise self._failure

    def _on_key(self, key: str) -> None:
        if key == "s":
            self._order = ORDERS[(ORDERS.index(self._order) + 1) % len(ORDERS)]
            self._wanted.set()
        elif key == "p":
            self._is_paused = not self._is_paused

    def _draw(self, console: Console) -> RenderableType:
        if self._latest is None:
            return Text("Asking the cluster …")
        note = f"sorted by {self._order}{'  PAUSED' if self._is_paused else ''}   {KEYS}"
        return frame(self._latest, console.width, console.height, note=note)

    def _work(self) -> None:
        try:
            while not self._stopped.is_set():
                if not self._is_paused:
                    self._latest = self._ask(self._order)
                self._wanted.wait(self._interval_s)
                self._wanted.clear()
        except BaseException as error:  # noqa: BLE001  the drawing thread raises it
            self._failure = error


@contextmanager
def _keys() -> Iterator[None]:
    """Read single keys without echo, within the context; without effect if the input is no terminal."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _read_key(wait_s: float) -> str:
    """Return the next key, empty after `wait_s`. Reads past the buffer of `sys.stdin`, which `select` does not see."""
    descriptor = sys.stdin.fileno()
    ready, _, _ = select.select([descriptor], [], [], wait_s)
    return os.read(descriptor, 1).decode("latin-1") if ready else ""
