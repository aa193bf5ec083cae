"""Network of a chaos run: a host per node and one for all clients, and partitions between them.

Each host is a network namespace with one address, joined by a pair of virtual interfaces to a router. The router is
this process's namespace (`RUN`), which also holds the store of tiered logs. A partition is a rule of the router's
routing policy, `from A to B blackhole`: packets vanish in one direction, and neither end notices. This needs only
iproute2 and namespaces, no packet filter (nftables, iptables) and no queueing discipline, which kernels of small
virtual machines lack, and no privileges inside a user namespace. Where namespaces are not available, everything runs on
loopback without partitions.

`enter` runs the whole program in namespaces, including a PID namespace: however the program ends, all processes end.
"""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Protocol

from tests.support.kafka.apache_kafka import free_ports

ENTERED = "OTTLA_CHAOS_NAMESPACES"
CLIENT_PORT = 9092
CONTROLLER_PORT = 9093
RUN_PORT = 9094
CLIENTS = 0  # the host on which all clients run; nodes count from 1
RUN = -1  # the host of the run itself and of the store; only its outgoing packets can be dropped
_ROUTER = f"10.77.{CLIENTS}.1"  # an address of the router, which every host uses as its gateway
_PROBE = (
    "ip link add probe0 type veth peer name probe1 && "
    "ip rule add from 10.77.1.2 to 10.77.2.2 dport 9092 blackhole && "
    "echo 1 > /proc/sys/net/ipv4/ip_forward"
)


class Plane(IntEnum):
    """The packets of a link: all, or those to one listener of the target; the value is the port, 0 for all."""

    ALL = 0
    DATA = CLIENT_PORT
    CONTROL = CONTROLLER_PORT


@dataclass(frozen=True)
class Link:
    """A direction between two hosts: the packets of one plane."""

    source: int
    target: int
    plane: Plane = Plane.ALL


class Network(Protocol):
    """The network as nodes, clients and faults use it. Hosts are numbered: `CLIENTS`, then the nodes from 1."""

    @property
    def refusal(self) -> str | None:
        """The reason why partitions are impossible, None if they are possible."""
        ...

    @property
    def own_address(self) -> str:
        """The address of this process, reachable from all hosts."""
        ...

    def addresses(self, node: int) -> tuple[str, str]:
        """Return the addresses of the node's client listener and controller listener."""
        ...

    def run_address(self, node: int) -> str:
        """Return the address of the node's listener for this process, which secure runs have."""
        ...

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a command on that host, without an extra process."""
        ...

    def cut(self, links: Sequence[Link]) -> None:
        """Drop every packet of these links from now on."""
        ...

    def heal(self, links: Sequence[Link]) -> None:
        """Undo a cut of the same links."""
        ...


def _unshare(command: Sequence[str]) -> list[str]:
    users = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *users, "--net", "--pid", "--fork", "--kill-child", "--mount-proc", *command]


def refusal() -> str | None:
    """Return the reason why namespaces are unavailable on this machine, None if they are available."""
    missing = [program for program in ("unshare", "nsenter", "ip") if shutil.which(program) is None]
    if missing:
        return f"{' and '.join(missing)} not on PATH (Debian: util-linux, iproute2)"
    probe = subprocess.run(_unshare(["sh", "-c", _PROBE]), capture_output=True, text=True, check=False)
    return None if probe.returncode == 0 else f"namespaces are refused: {probe.stderr.strip()}"


def entered() -> bool:
    """Whether this process is the one that `enter` started."""
    return ENTERED in os.environ


def enter() -> None:
    """Run this program again inside new namespaces and exit with its code. Return only if that is impossible."""
    if refusal() is not None:
        return
    inside = subprocess.Popen(_unshare([sys.executable, *sys.orig_argv[1:]]), env={**os.environ, ENTERED: "1"})
    signal.signal(signal.SIGTERM, lambda *_: inside.kill())  # unshare ends all processes inside with it
    try:
        sys.exit(inside.wait())
    except KeyboardInterrupt:  # the terminal has signalled the inner program as well
        inside.wait()
        raise


@contextlib.contextmanager
def network(nodes: int) -> Iterator[Network]:
    """Return a network for so many nodes: with namespaces after `enter`, else on loopback."""
    if not entered():
        yield Loopback(nodes)
        return
    # The first process of a PID namespace ignores signals without a handler.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as stack:
        yield Namespaces([_host(stack, index) for index in range(nodes + 1)])


def _host(stack: contextlib.ExitStack, index: int) -> int:
    """Create a namespace with an address and a route to the router. Return the id of the process that holds it."""
    holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    stack.callback(holder.wait)
    stack.callback(holder.kill)
    own = os.readlink("/proc/self/ns/net")
    while os.readlink(f"/proc/{holder.pid}/ns/net") == own:
        time.sleep(0.01)
    inside = ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]
    router, host, name = f"10.77.{index}.1", f"10.77.{index}.2", f"host{index}"
    _run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
    _run("ip", "address", "add", f"{router}/30", "dev", name)
    _run("ip", "link", "set", name, "up")
    _run(*inside, "ip", "link", "set", "lo", "up")
    _run(*inside, "ip", "address", "add", f"{host}/30", "dev", "eth0")
    _run(*inside, "ip", "link", "set", "eth0", "up")
    _run(*inside, "ip", "route", "add", "default", "via", router)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1\n")
    _run("ip", "link", "set", "lo", "up")
    return holder.pid


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"


@dataclass
class Namespaces:
    """One network namespace per host; `holders` are the processes that keep them."""

    holders: Sequence[int]
    refusal: str | None = None
    _rules: list[Link] = field(default_factory=list)

    @property
    def own_address(self) -> str:
        return _ROUTER

    def addresses(self, node: int) -> tuple[str, str]:
        host = f"10.77.{node}.2"
        return f"{host}:{CLIENT_PORT}", f"{host}:{CONTROLLER_PORT}"

    def run_address(self, node: int) -> str:
        return f"10.77.{node}.2:{RUN_PORT}"

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        return ["nsenter", f"--net=/proc/{self.holders[host]}/ns/net", *command]

    def cut(self, links: Sequence[Link]) -> None:
        self._change("add", links)

    def heal(self, links: Sequence[Link]) -> None:
        self._change("delete", links)

    def _change(self, verb: str, links: Sequence[Link]) -> None:
        for link in links:
            ports = ["dport", str(int(link.plane))] if link.plane is not Plane.ALL else []
            source = _ROUTER if link.source == RUN else f"10.77.{link.source}.2"
            pair = ["from", source, "to", f"10.77.{link.target}.2"]
            _run("ip", "rule", verb, *pair, *ports, "blackhole")


@dataclass
class Loopback:
    """All hosts on 127.0.0.1 with free ports."""

    nodes: int

    @property
    def refusal(self) -> str:
        return refusal() or "the run was not started in namespaces"

    @functools.cached_property
    def _ports(self) -> list[int]:
        return free_ports(3 * self.nodes)

    @property
    def own_address(self) -> str:
        return "127.0.0.1"

    def addresses(self, node: int) -> tuple[str, str]:
        client, controller, _ = self._ports_of(node)
        return f"127.0.0.1:{client}", f"127.0.0.1:{controller}"

    def run_address(self, node: int) -> str:
        return f"127.0.0.1:{self._ports_of(node)[2]}"

    def _ports_of(self, node: int) -> list[int]:
        return self._ports[3 * node - 3 : 3 * node]

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        return list(command)

    def cut(self, links: Sequence[Link]) -> None:
        raise AssertionError(self.refusal)

    heal = cut
