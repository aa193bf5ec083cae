"""A text corpus through every client and codec, with a `kill -9` of the node while the producer is sending."""

import gc
import itertools
import shutil
from collections.abc import Iterator

import pytest

from tests.integration.corpus_run import run_case, text_lines
from tests.support.clients.client_programs import CODECS, PROGRAMS
from tests.support.processes.ottla_node import OttlaNode

LINES = 12_000

# kafka-python leaves sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(autouse=True)
def _collect_garbage_of_clients() -> Iterator[None]:
    """Collect clients' garbage within the test whose warnings are filtered, not in a later test."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    settings = {"num.partitions": "6", "group.initial.rebalance.delay.ms": "500"}
    with OttlaNode(tmp_path_factory.mktemp("corpus"), settings) as running:
        yield running


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    return list(itertools.islice(text_lines(None), LINES))


@pytest.mark.integration
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_acknowledged_lines_are_read_unchanged_after_a_kill(
    node: OttlaNode, lines: list[bytes], program: str, codec: str
) -> None:
    if program == "kcat" and shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    outcome = run_case(node, PROGRAMS[program](), f"corpus-{program}-{codec}", lines, codec)
    assert outcome.acknowledged == len(lines)
    assert outcome.missing == 0
    assert outcome.changed == 0
    assert outcome.in_log == len(lines), "the retry of an idempotent producer was written twice"


def test_corpus_has_enough_distinct_lines() -> None:
    sample = list(itertools.islice(text_lines(None), LINES))
    assert len(sample) == LINES
    assert len(set(sample)) > LINES // 4
