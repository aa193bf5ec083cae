"""What the supervisor tells whoever started it: when a node is ready or has exited, and where clients connect."""

import signal
from collections.abc import Callable, Sequence

from broker.supervisor.layout import LocalNode

WriteLine = Callable[[str], None]


class StatusReport:
    """Turns events into lines."""

    def __init__(self, nodes: Sequence[LocalNode], say: WriteLine) -> None:
        self._nodes = nodes
        self._say = say
        self._seen_ready: set[int] = set()
        self._active_controller: int | None = None

    def ready(self, node: LocalNode, pid: int, took_s: float, http_url: str | None = None) -> None:
        """The node serves clients; the first time that all do, the cluster is ready. `http_url` is what it said."""
        again = "again " if node.id in self._seen_ready else ""
        http = node.http_url or http_url or "no http"
        self._say(f"node {node.id}  {node.address}  {http}  pid {pid}  ready {again}in {took_s:.2f} s")
        if node.id in self._seen_ready:
            return
        self._seen_ready.add(node.id)
        if len(self._seen_ready) == len(self._nodes):
            self._say(f"bootstrap server: {','.join(each.address for each in self._nodes)}")

    def exited(self, node: LocalNode, code: int | None, last_words: str, restart_in_s: float | None) -> None:
        """The node is gone without having been asked to stop. `code` is None if it could not even be started."""
        after = "is left alone" if restart_in_s is None else f"is started again in {restart_in_s:.1f} s"
        why = "" if code == -signal.SIGKILL else f": {last_words}"  # of that it could not know
        self._say(f"node {node.id} has exited ({_manner(code)}) and {after}{why}")

    def leads(self, node: LocalNode) -> None:
        """The node has become the active controller. Alone in its cluster it has no choice, and need not say so."""
        if len(self._nodes) > 1 and node.id != self._active_controller:
            self._say(f"node {node.id} is the active controller")
        self._active_controller = node.id

    def trouble(self, node: LocalNode, sentence: str) -> None:
        """Something that the node can live with."""
        self._say(f"node {node.id}: {sentence}")


def _manner(code: int | None) -> str:
    if code is None:
        return "not started"
    if code >= 0:
        return f"code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
