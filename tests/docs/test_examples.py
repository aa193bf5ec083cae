"""The programs in `docs/examples`: each language writes ten records, reads them in a group, and copies them once."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.docs.blocks import ROOT
from tests.support.kafka.apache_kafka import JARS, POM, java_command, unavailable_reason
from tests.support.processes.ottla_node import OttlaNode, clean_environment, run_ottla

pytestmark = pytest.mark.integration

EXAMPLES = ROOT / "docs" / "examples"
BUILD = ROOT / "build" / "docs-examples"
PROGRAM_TIMEOUT_S = 300
ORDERS = {f"customer-{number % 3} order {number}" for number in range(10)}

Program = Callable[[str], list[str]]
"""The command line of the program `produce`, `consume` or `transaction`."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    with OttlaNode(tmp_path_factory.mktemp("examples"), settings) as running:
        yield running


def python() -> Program:
    return lambda name: [sys.executable, str(EXAMPLES / "python" / f"{name}.py")]


def java() -> Program:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    sources = EXAMPLES / "java" / "src" / "main" / "java"
    return lambda name: java_command(str(sources / f"{name.capitalize()}.java"), heap="192m")


def go() -> Program:
    if shutil.which("go") is None:
        pytest.skip("go is not on PATH")
    programs = BUILD / "go"
    programs.mkdir(parents=True, exist_ok=True)
    build = ["go", "build", "-buildvcs=false", "-o", f"{programs}/", "./..."]
    subprocess.run(build, cwd=EXAMPLES / "go", check=True)
    return lambda name: [str(programs / name)]


def javascript() -> Program:
    if shutil.which("npm") is None:
        pytest.skip("npm is not on PATH")
    directory = BUILD / "javascript"
    shutil.copytree(EXAMPLES / "javascript", directory, dirs_exist_ok=True)
    install = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run(install, cwd=directory, check=True, capture_output=True)
    return lambda name: ["node", str(directory / f"{name}.js")]


@pytest.mark.parametrize("language", [python, java, go, javascript], ids=lambda language: str(language.__name__))
def test_programs_write_read_and_copy_ten_records(language: Callable[[], Program], node: OttlaNode) -> None:
    program = language()
    recreate_topics(node)
    assert "orders-0" in output(node, program("produce"))
    assert set(output(node, program("consume")).splitlines()) == ORDERS
    assert output(node, program("transaction")).splitlines()[-1] == "committed 10 records"
    assert invoices(node) == sorted(f"invoice for {order.split(' ', 1)[1]}" for order in ORDERS)


def test_java_examples_use_the_client_of_the_other_tests() -> None:
    version = POM.read_text().partition("<kafka.version>")[2].partition("<")[0]
    assert f"<version>{version}</version>" in (EXAMPLES / "java" / "pom.xml").read_text()
    assert (JARS / f"kafka-clients-{version}.jar").exists() or unavailable_reason() is not None


def recreate_topics(node: OttlaNode) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    existing = [name for name in ("orders", "invoices") if name in admin.list_topics(timeout=30).topics]
    for done in admin.delete_topics(existing).values() if existing else ():
        done.result(60)
    for done in admin.create_topics([NewTopic(name, 1, 1) for name in ("orders", "invoices")]).values():
        done.result(60)


def output(node: OttlaNode, command: list[str]) -> str:
    environment = {**clean_environment(), "BOOTSTRAP": node.bootstrap, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PROGRAM_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def invoices(node: OttlaNode) -> list[str]:
    """Return the committed values of the topic `invoices`, sorted."""
    limits = ("--from-beginning", "--isolation-level", "read_committed", "--max-messages", str(len(ORDERS)))
    read = run_ottla("console-consumer", "--bootstrap-server", node.bootstrap, "--topic", "invoices", *limits)
    return sorted(line for line in read.stdout.splitlines() if line.startswith("invoice"))
