"""One chaos run: clients, faults, and the final checks."""

import time
from collections.abc import Sequence

from tests.chaos.faults import Faults
from tests.chaos.nodes import ChaosCluster, partition_directories
from tests.chaos.replicas import difference, wait_equal_sizes
from tests.chaos.tier_run import TierRun
from tests.chaos.topic import TopicRun

# Producers continue after the last fault, so that every partition ends in its last epoch.
AFTERMATH_S = 8.0


class Run:
    """Single-use object: call `carry_out` once. `tiered` are the topics of `tier`; `main` is on local disks only."""

    def __init__(
        self,
        cluster: ChaosCluster,
        main: TopicRun,
        faults: Faults,
        tiered: Sequence[TopicRun] = (),
        tier: TierRun | None = None,
    ) -> None:
        self._cluster = cluster
        self._main = main
        self._tiered = tiered
        self._topics = [main, *tiered]
        self._tier = tier
        self.faults = faults

    def carry_out(self, seconds: float) -> None:
        """Run and judge. Topics then have outcomes and the tier verdicts. Raise RunFailed if nothing can be judged."""
        for topic in self._topics:
            topic.create_topic()
        try:
            for topic in self._topics:
                topic.start()
            for topic in self._topics:
                topic.wait_for_first_acks()
            for topic in self._topics:
                topic.begin_clock()
            self._inject_faults(seconds)
            self._settle()
            for topic in self._topics:
                topic.stop_rereading()
                topic.read_all()
                topic.drain()
        finally:
            for topic in self._topics:
                topic.kill()
        self._judge()

    def _inject_faults(self, seconds: float) -> None:
        if self._tier is not None:
            self._tier.start()
        try:
            self.faults.run(time.monotonic() + seconds)
        finally:
            if self._tier is not None:
                self._tier.heal()

    def _settle(self) -> None:
        """Wait until all living nodes are healthy, produce some more records, then stop producers."""
        self._cluster.wait_ready()
        time.sleep(AFTERMATH_S)
        for topic in self._topics:
            topic.stop_producing()

    def _judge(self) -> None:
        for topic in self._topics:
            topic.judge()
        if self._tier is not None:
            self._tier.judge(self._tiered)
        load = self._main.load
        replicas = [partition_directories(self._cluster.living, load.topic, each) for each in range(load.partitions)]
        wait_equal_sizes(replicas)
        self._cluster.kill()
        self._main.outcome.errors += [found for found in map(difference, replicas) if found is not None]
