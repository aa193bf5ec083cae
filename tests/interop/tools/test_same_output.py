"""The same call of Kafka's tool and of ours, against the same cluster, has the same outcome.

Usage errors exit with 1 in Kafka's tools and with 2 in ours, and prose on standard error differs; both are compared as
success or failure only.
"""

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.cli.main import run
from tests.interop.tools.calls import CALLS, Call, prepare
from tests.support.kafka.apache_kafka import unavailable_reason
from tests.support.kafka.kafka_commands import COMMANDS
from tests.support.kafka.tool_runner import KafkaTools
from tests.support.processes.ottla_node import OttlaNode

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    with OttlaNode(tmp_path_factory.mktemp("node"), {"group.initial.rebalance.delay.ms": "0"}) as running:
        prepare(running.bootstrap)
        yield running


@pytest.fixture(scope="module")
def tools(node: OttlaNode) -> Iterator[KafkaTools]:
    with KafkaTools(node.directory / "tools.log") as running:
        yield running


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_call_has_the_outcome_of_kafkas_tool(node: OttlaNode, tools: KafkaTools, call: Call, tmp_path: Path) -> None:
    command = COMMANDS[call.script]
    theirs = tools.run(command.main, *call.arguments(node, tmp_path, "kafka"))
    assert command.ours is not None
    code, out = run_here(command.ours, *call.arguments(node, tmp_path, "ottla"))
    assert (code == 0) == (theirs.code == 0), theirs.err
    if theirs.code == 0 or not call.is_usage:
        ours = call.mask(out)
        assert ours == call.mask(theirs.out)


def run_here(*arguments: str) -> tuple[int, str]:
    """Run our command in this process; return exit code and standard output."""
    out = io.TextIOWrapper(io.BytesIO(), write_through=True)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = run(list(arguments))
    out.seek(0)
    return code, out.read()


def test_each_command_has_a_call() -> None:
    replaced = {name for name, command in COMMANDS.items() if command.ours is not None}
    assert {call.script for call in CALLS} >= replaced - ELSEWHERE
    assert not re.findall("  +", " ".join(str(call) for call in CALLS))


ELSEWHERE = {
    name
    for name in COMMANDS
    if name.removeprefix("kafka-")
    in {
        "server-start",  # every interop test
        "metadata-shell",  # tests/broker/cli/kafka_shell
        "console-producer",  # tests/interop/test_kafka_tools.py, which reads standard input
        "storage",  # tests/interop/quorum
        "delegation-tokens",  # tests/interop/security, which has logins
        "replica-verification",  # runs until it is stopped
        "acls",  # tests/interop/test_acls.py, which has an authorizer
    }
}
