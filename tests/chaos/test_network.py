"""Partitions between network namespaces."""

import os
import socket
import subprocess
import sys

import pytest

from tests.chaos import network
from tests.chaos.network import CLIENTS, RUN, Link, Plane
from tests.support.kafka.apache_kafka import REPOSITORY

SERVE = """
import socket
server = socket.create_server(("10.77.1.2", 9092))
print("ready", flush=True)
while True:
    server.accept()[0].sendall(b"hello")
"""
CONNECT = """
import socket, sys
timeout_s = float(sys.argv[1])
client = socket.create_connection(("10.77.1.2", 9092), timeout_s)
client.settimeout(timeout_s)
sys.exit(client.recv(5) != b"hello")
"""


@pytest.mark.integration
def test_each_direction_can_be_cut_and_healed() -> None:
    """Run the checks in a process that enters the namespaces, since this process must stay outside."""
    if (reason := network.refusal()) is not None:
        pytest.skip(reason)
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.test_network"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def main() -> None:
    if not network.entered():
        network.enter()
    with network.network(nodes=2) as net:
        server = subprocess.Popen(net.command(1, [sys.executable, "-c", SERVE]), stdout=subprocess.PIPE)
        assert server.stdout is not None
        server.stdout.readline()

        def reached(host: int, timeout_s: float = 60.0) -> bool:
            command = net.command(host, [sys.executable, "-c", CONNECT, str(timeout_s)])
            return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0

        assert os.getpid() == 1, "the process is not in a PID namespace of its own"
        assert reached(2)
        for link in (Link(1, 2), Link(2, 1), Link(2, 1, Plane.DATA)):
            net.cut([link])
            assert not reached(2, 0.7), link
            assert reached(CLIENTS), link
            net.heal([link])
            assert reached(2), link
        net.cut([Link(1, 2, Plane.DATA)])  # drops packets to the listener, not responses to the host's own requests
        assert reached(2)
        net.heal([Link(1, 2, Plane.DATA)])
        net.cut([Link(2, 1, Plane.CONTROL)])  # leaves the listener for clients and followers reachable
        assert reached(2)
        net.heal([Link(2, 1, Plane.CONTROL)])

        server.kill()
        server.wait()
        check_run_address(net)


def check_run_address(net: network.Network) -> None:
    """Check that all hosts reach the run at one address, and that each can be partitioned from it."""
    with socket.create_server(("0.0.0.0", 0)) as own:
        place = (net.own_address, own.getsockname()[1])
        code = f"import socket; socket.create_connection({place}, 0.7)"

        def reached(host: int) -> bool:
            tried = subprocess.run(net.command(host, [sys.executable, "-c", code]), stderr=subprocess.DEVNULL)
            return tried.returncode == 0

        assert reached(1)
        assert reached(2)
        net.cut([Link(RUN, 1)])
        assert not reached(1)
        assert reached(2)
        net.heal([Link(RUN, 1)])
        assert reached(1)


if __name__ == "__main__":
    main()
