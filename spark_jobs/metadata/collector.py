"""Keeps Python's cycle collector out of the way of many objects that are here to stay."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collections() -> Iterator[None]:
    """What is made meanwhile holds no cycles: the collector would look at all of it again and again, for nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
