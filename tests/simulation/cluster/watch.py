"""The detection of ended broker processes by controllers (`broker_watch.py`), over the simulated connections.

A killed process closes its connections, and its machine refuses new ones until the next process listens. A machine
without power, or behind a cut link, says nothing. A stalled process accepts connections.
"""

import asyncio
from collections.abc import Collection, Mapping
from random import Random
from typing import Final

from broker.metadata.image.cluster_image import RegisteredEndpoint
from broker.net.peer import SocketAddress
from broker.runtime.controller.broker_watch import BrokerWatch, ProbeResult
from tests.simulation.cluster.replica import MetadataReplica
from tests.simulation.replication.broker import Node
from tests.simulation.replication.network import LISTENER, Wires
from tests.simulation.replication.process import TaskProcess

_SHARE: Final = 0.3
"""Share of the histories in which controllers look for ended processes."""
_LATEST_S: Final = 0.02
"""Longest time until a probe has a result."""


class Prober:
    """Attempts to connect from one controller. `powerless` are the nodes that lost their power at last."""

    def __init__(self, wires: Wires, process: TaskProcess, powerless: Collection[int], random: Random) -> None:
        self._wires = wires
        self._process = process
        self._powerless = powerless
        self._random = random

    async def probe(self, endpoint: RegisteredEndpoint) -> ProbeResult:
        """Return whether a process listens at the endpoint."""
        await asyncio.sleep(self._random.uniform(0.0, _LATEST_S))
        address, own = SocketAddress(endpoint.host, endpoint.port), self._process.node_id
        owner = self._wires.owner(address)
        if self._wires.is_blocked(own, owner) or self._wires.is_blocked(owner, own):
            return ProbeResult.UNKNOWN
        if self._wires.server_at(address) is not None:
            return ProbeResult.LISTENS
        return ProbeResult.UNKNOWN if owner in self._powerless else ProbeResult.REFUSED


class EndedProcesses:
    """The ends of broker processes. Controllers learn of them with `is_on`, and in a share of the other histories."""

    def __init__(self, seed: int, wires: Wires, nodes: Mapping[int, Node], *, is_on: bool) -> None:
        self._seed = seed
        self._wires = wires
        self._nodes = nodes
        self._powerless: set[int] = set()
        """Nodes that lost their power at last."""
        self.is_on = is_on or Random(f"broker watch {seed}").random() < _SHARE

    def note_end(self, node_id: int, *, power: bool) -> None:
        """Let the machine of a process close its connections to controllers, unless it loses its power."""
        node = self._nodes.get(node_id)
        if power:
            self._powerless.add(node_id)
            return
        self._powerless.discard(node_id)
        broker = None if node is None else node.broker
        for wires in getattr(broker, "controller_wires", ()) if self.is_on else ():
            wires.end()

    def watch(self, replica: MetadataReplica, process: TaskProcess) -> BrokerWatch | None:
        """Build the watch of one controller, as in `broker.node.controller`; None where controllers have none."""
        if not self.is_on:
            return None
        random = Random(f"probes {self._seed} {process.node_id} {process.world.now_ms}")
        prober = Prober(self._wires, process, self._powerless, random)
        watch = BrokerWatch(process.node_id, LISTENER, replica.driver, prober.probe, spawn=process.create_task)
        replica.driver.add_publisher(watch)
        replica.driver.watch_activation(watch.on_active)
        return watch
