"""The options of Kafka's tools against ours; `docs/commands.md` lists the absent ones with a reason."""

import re
from collections.abc import Iterator

import pytest

from tests.interop.tools.flags import options_of_kafka, options_of_ours
from tests.support.kafka.apache_kafka import unavailable_reason
from tests.support.kafka.documented_commands import rows
from tests.support.kafka.kafka_commands import COMMANDS
from tests.support.kafka.tool_runner import KafkaTools

pytestmark = pytest.mark.interop

COMPARED = [name for name, command in COMMANDS.items() if command.ours is not None and name != "kafka-server-start"]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    with KafkaTools(tmp_path_factory.mktemp("tools") / "tools.log") as running:
        yield running


@pytest.mark.parametrize("name", COMPARED)
def test_absent_options_are_documented(tools: KafkaTools, name: str) -> None:
    command = COMMANDS[name]
    assert command.ours is not None
    theirs = options_of_kafka(tools, command)
    assert theirs
    absent = theirs - options_of_ours(command.ours)
    assert absent == set(re.findall(r"`(--[\w.-]+)`", rows()[name].left_out))
