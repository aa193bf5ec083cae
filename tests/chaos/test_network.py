"""Packets that vanish on their way, in namespaces of their own."""

import os
import subprocess
import sys

import pytest

from tests.chaos import network
from tests.chaos.network import CLIENTS, Link
from tests.support.apache_kafka import REPOSITORY

SERVE = """
import socket
server = socket.create_server(("10.77.1.2", 9092))
print("ready", flush=True)
while True:
    server.accept()[0].sendall(b"hello")
"""
CONNECT = """
import socket, sys
client = socket.create_connection(("10.77.1.2", 9092), 0.7)
client.settimeout(0.7)
sys.exit(client.recv(5) != b"hello")
"""


@pytest.mark.integration
def test_each_direction_can_be_cut_and_healed() -> None:
    """Run in a process that enters the namespaces: this one stays where it is."""
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

        def reached(host: int) -> bool:
            tried = subprocess.run(net.command(host, [sys.executable, "-c", CONNECT]), stderr=subprocess.DEVNULL)
            return tried.returncode == 0

        assert os.getpid() == 1, "processes have a namespace of their own"
        assert reached(2)
        for link in (Link(1, 2), Link(2, 1), Link(2, 1, data_only=True)):
            net.cut([link])
            assert not reached(2), link
            assert reached(CLIENTS), link
            net.heal([link])
            assert reached(2), link
        net.cut([Link(1, 2, data_only=True)])  # the other's listener, not the answers to its requests
        assert reached(2)
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()
