"""Throughput limit of a producer: short sleeps that keep it near a number of records per second."""

import time
from collections.abc import Callable

MIN_SLEEP_S = 0.002


class Pacer:
    """Records per second; a negative rate is no limit. Small sleeps are saved up, since short ones are inexact."""

    def __init__(self, rate: float, now_s: float, sleep: Callable[[float], None] = time.sleep) -> None:
        self._rate = rate
        self._start_s = now_s
        self._sleep = sleep

    def wait(self, sent: int, now_s: float) -> None:
        """Sleep if `sent` records are more than the rate permits until now."""
        if self._rate < 0:
            return
        ahead_s = sent / self._rate - (now_s - self._start_s)
        if ahead_s >= MIN_SLEEP_S:
            self._sleep(ahead_s)
