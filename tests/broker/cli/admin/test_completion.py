"""Completion of commands, options and names, in bash itself and by click's interface to other shells."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from broker.cli.main import run
from protocol.api_keys import ApiKey
from protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from tests.support.fakes.fake_broker import FakeBroker
from tests.support.kafka.apache_kafka import REPOSITORY

ASK = """
eval "$(ottla completion bash)"
COMP_WORDS=(ottla "$@")
COMP_CWORD=$#
_ottla_completion ottla
printf '%s\\n' "${COMPREPLY[@]}"
"""


class Bash:
    """A bash that has loaded the script, with `ottla` on its path."""

    def __init__(self, directory: Path) -> None:
        program = directory / "ottla"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m broker "$@"\n')
        program.chmod(0o755)
        self._environment = os.environ | {"PATH": f"{directory}:{os.environ['PATH']}"}

    def complete(self, *words: str) -> list[str]:
        """Return the completions of the last word."""
        done = subprocess.run(
            ["bash", "-c", ASK, "bash", *words],
            capture_output=True,
            text=True,
            cwd=REPOSITORY,
            env=self._environment,
            timeout=180,
            check=True,
        )
        assert done.stderr == ""
        return done.stdout.split()


@pytest.fixture
def bash(tmp_path: Path) -> Bash:
    if shutil.which("bash") is None:
        pytest.skip("bash is not on PATH")
    return Bash(tmp_path)


def test_bash_completes_commands_and_options(bash: Bash) -> None:
    assert bash.complete("get-o") == ["get-offsets"]
    assert bash.complete("cluster", "list") == ["list-endpoints"]
    assert bash.complete("topics", "--partition-s") == ["--partition-size-limit-per-response"]


def test_bash_completes_names_of_the_cluster(bash: Bash, broker: FakeBroker) -> None:
    broker.topics = {"orders": 1, "order-events": 1, "users": 1}
    broker.answer(
        ApiKey.LIST_GROUPS,
        lambda _: ListGroupsResponse(groups=[ListedGroup("billing", "consumer"), ListedGroup("audit", "share")]),
    )
    at = ("--bootstrap-server", broker.address)
    assert bash.complete("topics", *at, "--topic", "ord") == ["order-events", "orders"]
    assert bash.complete("consumer-groups", *at, "--group", "b") == ["billing"]


def test_unreachable_cluster_and_no_server_complete_nothing(bash: Bash) -> None:
    assert bash.complete("topics", "--bootstrap-server", "127.0.0.1:1", "--topic", "") == []
    assert bash.complete("topics", "--topic", "") == []


@pytest.mark.parametrize(
    ("shell", "line"), [("zsh", "#compdef ottla"), ("fish", "complete --no-files --command ottla")]
)
def test_scripts_of_other_shells(shell: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert line in capsys.readouterr().out


def test_unknown_shell_is_refused() -> None:
    assert run(["completion", "csh"]) == 2
