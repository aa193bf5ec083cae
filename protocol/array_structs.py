"""Structs for arrays of fixed-width items, by length: creating a Struct costs more than packing with it."""

from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import Any

KEPT_ARRAY_STRUCTS = 1024
"""Arrays of at least this many items get a new Struct each time, because peers choose the lengths."""


class ArrayStructs(dict[int, Callable[..., Any]]):
    """Number of items -> bound method of a Struct for that many, created on first use."""

    def __init__(self, code: str, method: str) -> None:
        super().__init__()
        self._code = code
        self._method = method

    def __missing__(self, count: int) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(Struct(f">{count}{self._code}"), self._method)
        if count < KEPT_ARRAY_STRUCTS:
            self[count] = method
        return method


@cache
def array_structs(code: str, method: str) -> ArrayStructs:
    """Return the shared table for a `struct` code and method."""
    return ArrayStructs(code, method)
