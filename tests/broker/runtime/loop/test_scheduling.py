"""Scheduling policy of a node and of its threads."""

import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from broker.runtime.loop.scheduling import BATCH, INHERIT, apply_policy

pytestmark = pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="Linux only")

T = TypeVar("T")


def in_new_thread(call: Callable[[], T]) -> T:
    """Call in a thread of its own: a policy belongs to a thread, and this one must keep its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def test_batch_policy_applies_to_threads_that_start_later() -> None:
    def policies() -> tuple[int, int]:
        apply_policy(BATCH)
        return os.sched_getscheduler(0), in_new_thread(lambda: os.sched_getscheduler(0))

    assert in_new_thread(policies) == (os.SCHED_BATCH, os.SCHED_BATCH)


def test_inherited_policy_stays() -> None:
    def policy() -> int:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        apply_policy(INHERIT)
        return os.sched_getscheduler(0)

    assert in_new_thread(policy) == os.SCHED_BATCH


def test_refused_policy_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    apply_policy(BATCH)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "Operation not permitted" in str(record.fields)  # type: ignore[attr-defined]


def test_system_without_the_policy_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delattr(os, "SCHED_BATCH")
    caplog.set_level(logging.INFO)
    apply_policy(BATCH)
    assert [record.levelno for record in caplog.records] == [logging.INFO]
