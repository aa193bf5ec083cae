"""The list of Kafka's commands against the catalogue, and against the scripts in the image."""

import re

import pytest

from broker.cli.catalogue import COMMANDS
from broker.cli.main import run
from tests.support.kafka.apache_kafka import REPOSITORY
from tests.support.kafka.kafka_commands import COMMANDS as KAFKA_COMMANDS
from tests.support.kafka.kafka_commands import OWN_COMMANDS

NOT_IN_THE_IMAGE = {"kafka-server-start"}
"""The image starts its node by /etc/kafka/docker/run."""


def test_every_command_replaces_one_of_kafka_or_is_listed_as_own() -> None:
    replacing = {command.ours for command in KAFKA_COMMANDS.values() if command.ours is not None}
    assert set(COMMANDS) - OWN_COMMANDS == replacing


def test_image_has_a_script_for_each_command_of_kafka() -> None:
    text = re.sub(r"\\\n", " ", (REPOSITORY / "Dockerfile").read_text())
    scripts = {
        f"kafka-{tool}{suffix}": tool
        for tools, suffix in re.findall(r"for tool in ([a-z0-9 -]+); do .*?/kafka-\$tool(-test)?\.sh", text)
        for tool in tools.split()
    }
    scripts |= {
        script: ours for ours, script in re.findall(r"/ottla ([a-z-]+) \S+ > /opt/kafka/bin/([a-z-]+)\.sh", text)
    }
    expected = {
        name: command.ours
        for name, command in KAFKA_COMMANDS.items()
        if command.ours is not None and name not in NOT_IN_THE_IMAGE
    }
    assert scripts == expected | {"kafka-cluster": "kafka-cluster"}


def test_image_script_for_cluster_starts_no_local_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kafka-cluster"]) == 2
    usage = capsys.readouterr().err
    assert all(action in usage for action in ("cluster-id", "unregister", "list-endpoints"))
    assert run(["kafka-cluster", "--nodes", "1"]) == 2
