"""Brokers delete the remote segments that a deposed leader's history left behind after an unclean election."""

import time
from collections.abc import Iterator

import pytest

from tests.support.clients.checkable_records import Recipe, read_back, write
from tests.support.clients.partition_states import until, wait_for_state, wait_until_whole
from tests.support.processes.s3_proxy import Fault
from tests.support.processes.s3_server import unavailable_reason
from tests.support.processes.tiered_cluster import TieredCluster

pytestmark = pytest.mark.integration

SIZE = 16 << 10
MIB = (1 << 20) // SIZE
FIRST_MS = time.time_ns() // 1_000_000 - 3_600_000
RECIPE, OTHER = Recipe(SIZE, FIRST_MS), Recipe(SIZE, FIRST_MS + 1_000_000)
# The lease is shorter than this, so that other brokers may soon delete an interrupted copy.
SHORT_GRACE = {"ottla.remote.log.collection.grace.ms": "4000"}


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredCluster]:
    if (reason := unavailable_reason()) is not None:
        pytest.skip(reason)
    with TieredCluster(tmp_path_factory.mktemp("collection"), SHORT_GRACE, seed=4) as running:
        yield running


def test_segments_of_a_deposed_history_are_deleted_automatically(tier: TieredCluster) -> None:
    tier.create("deposed", [1, 2], unclean_leader_election_enable="true", min_insync_replicas="1")
    write(tier.bootstrap, "deposed", RECIPE, 0, range(2 * MIB))
    wait_until_whole(tier.bootstrap, "deposed")
    tier.brokers[2].kill()
    wait_for_state(tier.bootstrap, "deposed", lambda state: state.isr == [1])
    write(tier.bootstrap, "deposed", RECIPE, 0, range(2 * MIB, 5 * MIB))
    until(lambda: any(each.start_offset > 2 * MIB for each in tier.finished("deposed")))
    tier.proxy.strike(Fault.FAILED, method="PUT")  # copies start and never finish
    write(tier.bootstrap, "deposed", RECIPE, 0, range(5 * MIB, 7 * MIB))
    until(lambda: {each.state.name for each in tier.segments("deposed")} > {"COPY_FINISHED"})
    # The last broker alone does not commit what it has received, so the metadata topic is read before.
    deposed = {each.id for each in tier.segments("deposed") if each.end_offset >= 2 * MIB}
    assert len(deposed) >= 2
    tier.brokers[1].kill()
    tier.proxy.relent()
    tier.brokers.start(2)
    wait_for_state(tier.bootstrap, "deposed", lambda state: state.leader == 2)
    write(tier.bootstrap, "deposed", OTHER, 0, range(2 * MIB, 6 * MIB))
    until(lambda: any(each.end_offset > 4 * MIB for each in tier.finished("deposed")))
    until(lambda: deposed.isdisjoint(each.id for each in tier.segments("deposed")))
    until(lambda: tier.bucket("deposed").segments == tier.expected_objects("deposed"))
    tier.brokers.start(1)
    wait_until_whole(tier.bootstrap, "deposed")
    for recipe, first, end in ((RECIPE, 0, 2 * MIB), (OTHER, 2 * MIB, 6 * MIB)):
        found = read_back(tier.bootstrap, "deposed", recipe, {0: end}, {0: first})
        assert found.faults == []
        assert found.count == end - first
    until(lambda: tier.bucket("deposed").segments == tier.expected_objects("deposed"))
    tier.remote("verify", "--topic", "deposed", "--grace-ms", "0", "--deep")
