"""Bursts of topics on nodes that share one slow disk do not unseat the active controller."""

from pathlib import Path

import pytest

from tests.integration.topic_burst import Burst, burst_cluster, run_burst
from tests.support.kafka.kraft_nodes import Make
from tests.support.processes import slow_fsync

pytestmark = pytest.mark.integration


def assert_steady(burst: Burst) -> None:
    assert burst.errors == [], burst
    assert burst.controller_changes == 0, burst
    assert burst.latencies_ms, burst


def test_burst_of_topics_does_not_change_the_controller(tmp_path: Path) -> None:
    with burst_cluster(tmp_path, Make.OTTLA) as cluster:
        assert_steady(run_burst(cluster, 100))


@pytest.mark.skipif(slow_fsync.unavailable_reason() is not None, reason=str(slow_fsync.unavailable_reason()))
def test_burst_of_topics_with_slow_fsyncs_does_not_change_the_controller(tmp_path: Path) -> None:
    with burst_cluster(tmp_path, Make.OTTLA, slow_fsync.slow_fsync(tmp_path, 300)) as cluster:
        assert_steady(run_burst(cluster, 100))
