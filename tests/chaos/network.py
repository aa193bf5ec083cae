"""Where the nodes and the clients of a chaos run live, and how some of them are kept from reaching each other.

Each node and the clients as a whole are hosts of their own: a network namespace with one address, joined by a pair of
virtual interfaces to a router, which is this process's namespace (`RUN`, where the store of tiered logs is, too). What
a partition takes away is a rule of the router's routing policy, `from A to B blackhole`: packets vanish on their way,
in one direction, and both ends go on as if nothing had happened. That needs nothing but iproute2 and namespaces, no
packet filter (nftables, iptables) and no queueing discipline, which kernels of small virtual machines leave out; and,
in a namespace for users, no privileges.
Where namespaces are not to be had, everybody lives on loopback and nothing can be partitioned.

`enter` puts the whole run into namespaces, one for processes among them: however the run ends, all of it ends.
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
from pathlib import Path
from typing import Protocol

from tests.support.kafka.apache_kafka import free_ports

ENTERED = "OTTLA_CHAOS_NAMESPACES"
CLIENT_PORT = 9092
CONTROLLER_PORT = 9093
CLIENTS = 0  # the host on which all clients run; nodes count from 1
RUN = -1  # where the run itself is, and what it keeps there; only what it sends can be cut off
_ROUTER = f"10.77.{CLIENTS}.1"  # one of its addresses; every host has it for the way to all others
_PROBE = (
    "ip link add probe0 type veth peer name probe1 && "
    "ip rule add from 10.77.1.2 to 10.77.2.2 dport 9092 blackhole && "
    "echo 1 > /proc/sys/net/ipv4/ip_forward"
)


@dataclass(frozen=True)
class Link:
    """Packets from one host to another, all of them or those of the data plane (the nodes' client listeners)."""

    source: int
    target: int
    data_only: bool = False


class Network(Protocol):
    """What nodes, clients and faults need of it. Hosts are numbered: `CLIENTS`, then the nodes from 1."""

    @property
    def refusal(self) -> str | None:
        """Why there can be no partitions, in words; None where there can."""
        ...

    @property
    def own_address(self) -> str:
        """Of this process, for all hosts."""
        ...

    def addresses(self, node: int) -> tuple[str, str]:
        """Of the node's listeners for clients and for controllers."""
        ...

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        """The command line that runs a command on that host; its process is the command's own."""
        ...

    def cut(self, links: Sequence[Link]) -> None:
        """From now on these lose every packet."""
        ...

    def heal(self, links: Sequence[Link]) -> None:
        """Undo a cut of the same links."""
        ...


def _unshare(command: Sequence[str]) -> list[str]:
    users = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *users, "--net", "--pid", "--fork", "--kill-child", "--mount-proc", *command]


def refusal() -> str | None:
    """Why namespaces cannot be used on this machine; None where they can."""
    missing = [program for program in ("unshare", "nsenter", "ip") if shutil.which(program) is None]
    if missing:
        return f"{' and '.join(missing)} not on PATH (Debian: util-linux, iproute2)"
    probe = subprocess.run(_unshare(["sh", "-c", _PROBE]), capture_output=True, text=True, check=False)
    return None if probe.returncode == 0 else f"namespaces are refused: {probe.stderr.strip()}"


def entered() -> bool:
    """Whether this process is the one that `enter` started."""
    return ENTERED in os.environ


def enter() -> None:
    """Run the program over in namespaces of its own, and exit as it does; returns only where that is not possible."""
    if refusal() is not None:
        return
    inside = subprocess.Popen(_unshare([sys.executable, *sys.orig_argv[1:]]), env={**os.environ, ENTERED: "1"})
    signal.signal(signal.SIGTERM, lambda *_: inside.kill())  # unshare takes everything in there with it
    try:
        sys.exit(inside.wait())
    except KeyboardInterrupt:  # the terminal told them too
        inside.wait()
        raise


@contextlib.contextmanager
def network(nodes: int) -> Iterator[Network]:
    """The network of this many nodes: with hosts of their own after `enter`, else loopback."""
    if not entered():
        yield Loopback(nodes)
        return
    # The first process of its namespace ignores what it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as stack:
        yield Namespaces([_host(stack, index) for index in range(nodes + 1)])


def _host(stack: contextlib.ExitStack, index: int) -> int:
    """A namespace with an address and a way to the router; the id of the process that holds it."""
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
    """One namespace for each host; `holders` are processes that keep them."""

    holders: Sequence[int]
    refusal: str | None = None
    _rules: list[Link] = field(default_factory=list)

    @property
    def own_address(self) -> str:
        return _ROUTER

    def addresses(self, node: int) -> tuple[str, str]:
        host = f"10.77.{node}.2"
        return f"{host}:{CLIENT_PORT}", f"{host}:{CONTROLLER_PORT}"

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        return ["nsenter", f"--net=/proc/{self.holders[host]}/ns/net", *command]

    def cut(self, links: Sequence[Link]) -> None:
        self._change("add", links)

    def heal(self, links: Sequence[Link]) -> None:
        self._change("delete", links)

    def _change(self, verb: str, links: Sequence[Link]) -> None:
        for link in links:
            ports = ["dport", str(CLIENT_PORT)] if link.data_only else []
            source = _ROUTER if link.source == RUN else f"10.77.{link.source}.2"
            pair = ["from", source, "to", f"10.77.{link.target}.2"]
            _run("ip", "rule", verb, *pair, *ports, "blackhole")


@dataclass
class Loopback:
    """Everybody on 127.0.0.1, on ports that were free."""

    nodes: int

    @property
    def refusal(self) -> str:
        return refusal() or "the run was not started in namespaces"

    @functools.cached_property
    def _ports(self) -> list[int]:
        return free_ports(2 * self.nodes)

    @property
    def own_address(self) -> str:
        return "127.0.0.1"

    def addresses(self, node: int) -> tuple[str, str]:
        client, controller = self._ports[2 * node - 2 : 2 * node]
        return f"127.0.0.1:{client}", f"127.0.0.1:{controller}"

    def command(self, host: int, command: Sequence[str]) -> list[str]:
        return list(command)

    def cut(self, links: Sequence[Link]) -> None:
        raise AssertionError(self.refusal)

    heal = cut
