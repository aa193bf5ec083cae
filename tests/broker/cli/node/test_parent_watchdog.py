"""A process that stops when its standard input ends."""

import os

from broker.cli.node.parent_watchdog import watch


def test_the_end_of_input_asks_for_a_stop_and_then_insists() -> None:
    ours, theirs = os.pipe()
    os.write(theirs, b"ignored")
    os.close(theirs)
    said: list[str] = []
    try:
        watch(ours, lambda: said.append("stop"), lambda: said.append("give up"), timeout_s=0)
    finally:
        os.close(ours)
    assert said == ["stop", "give up"]
