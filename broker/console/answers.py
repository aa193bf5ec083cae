"""Answers that requests of the console share: ten browsers cost as much as one."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar

T = TypeVar("T")

ENTRIES_MAX: Final = 64


class SharedAnswers:
    """Keeps each answer for `lifetime_ms`; requests for an answer that is being made wait for it."""

    def __init__(self, monotonic_ms: Callable[[], float], lifetime_ms: int) -> None:
        self._monotonic_ms = monotonic_ms
        self._lifetime_ms = lifetime_ms
        self._entries: OrderedDict[Hashable, tuple[float, asyncio.Task[Any]]] = OrderedDict()

    async def get(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """Return the answer under `key`, made by `make` unless there is a fresh one."""
        now = self._monotonic_ms()
        entry = self._entries.get(key)
        if entry is None or (entry[1].done() and (entry[0] <= now or not _has_succeeded(entry[1]))):
            entry = now + self._lifetime_ms, asyncio.ensure_future(_run(make))
            self._entries[key] = entry
        self._entries.move_to_end(key)
        while len(self._entries) > ENTRIES_MAX:
            self._entries.popitem(last=False)
        answer: T = await asyncio.shield(entry[1])
        return answer

    def close(self) -> None:
        """Cancel the answers that are being made."""
        for _, task in self._entries.values():
            task.cancel()


async def _run(make: Callable[[], Awaitable[T]]) -> T:
    return await make()


def _has_succeeded(task: "asyncio.Task[Any]") -> bool:
    return not task.cancelled() and task.exception() is None
