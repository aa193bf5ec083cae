"""Status lines of a local cluster: readiness and exits of nodes, and the bootstrap servers."""

import signal
from collections.abc import Callable, Sequence

from broker.supervisor.layout import LocalNode

WriteLine = Callable[[str], None]


class StatusReport:
    """Formats events as lines."""

    def __init__(self, nodes: Sequence[LocalNode], write_line: WriteLine) -> None:
        self._nodes = nodes
        self._write_line = write_line
        self._seen_ready: set[int] = set()
        self._active_controller: int | None = None

    def ready(self, node: LocalNode, pid: int, took_s: float, http_url: str | None = None) -> None:
        """Report that the node serves clients. The bootstrap servers follow once every node does. `http_url` is from
        its output.
        """
        again = "again " if node.id in self._seen_ready else ""
        http = node.http_url or http_url or "no http"
        self._write_line(f"node {node.id}  {node.address}  {http}  pid {pid}  ready {again}in {took_s:.2f} s")
        if node.id in self._seen_ready:
            return
        self._seen_ready.add(node.id)
        if len(self._seen_ready) == len(self._nodes):
            self._write_line(f"bootstrap server: {','.join(each.address for each in self._nodes)}")

    def exited(self, node: LocalNode, code: int | None, last_message: str, restart_in_s: float | None) -> None:
        """Report an exit without a request to stop. `code` is None if the process could not be started."""
        after = "is not restarted" if restart_in_s is None else f"is restarted in {restart_in_s:.1f} s"
        why = "" if code == -signal.SIGKILL else f": {last_message}"  # SIGKILL leaves no message
        self._write_line(f"node {node.id} has exited ({_exit_status(code)}) and {after}{why}")

    def leads(self, node: LocalNode) -> None:
        """Report a new active controller. A cluster of one node has no alternative, so nothing is reported."""
        if len(self._nodes) > 1 and node.id != self._active_controller:
            self._write_line(f"node {node.id} is the active controller")
        self._active_controller = node.id

    def trouble(self, node: LocalNode, sentence: str) -> None:
        """Report a problem that does not stop the node."""
        self._write_line(f"node {node.id}: {sentence}")


def _exit_status(code: int | None) -> str:
    if code is None:
        return "not started"
    if code >= 0:
        return f"code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
