"""The watchdog that stops a process when its standard input ends."""

import os

from broker.cli.node.parent_watchdog import watch


def test_end_of_input_stops_the_process_then_forces_its_exit() -> None:
    ours, theirs = os.pipe()
    os.write(theirs, b"ignored")
    os.close(theirs)
    calls: list[str] = []
    try:
        watch(ours, lambda: calls.append("stop"), lambda: calls.append("exit now"), timeout_s=0)
    finally:
        os.close(ours)
    assert calls == ["stop", "exit now"]
