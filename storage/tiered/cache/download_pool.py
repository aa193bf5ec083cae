"""Threads that download, so that a download goes on when whoever asked for it does not wait any longer.

What a reader waits for goes before what is fetched ahead of readers. Threads start when there is work and end when
there was none for a while; they do not keep the process alive.
"""

import threading
from collections import deque
from typing import Protocol

_IDLE_SECONDS = 10.0


class Download(Protocol):
    def run(self) -> None:
        """Must not raise."""
        ...

    def abandon(self) -> None:
        """Instead of `run`, where the pool was closed before its turn came."""
        ...


class Downloads(Protocol):
    """What a cache asks of the pool."""

    def submit(self, download: Download, *, is_ahead: bool) -> bool:
        """False where too many wait already, or all is over: the download is then neither run nor abandoned."""
        ...

    def hurry(self, download: Download) -> None:
        """Somebody waits now for what was to be fetched ahead; no matter if it runs already."""
        ...

    def close(self) -> None: ...


class DownloadPool:
    """Implements Downloads. `max_waiting` bounds each of the two queues."""

    def __init__(self, threads: int, max_waiting: int, idle_seconds: float = _IDLE_SECONDS) -> None:
        self._max_threads = threads
        self._max_waiting = max_waiting
        self._idle_seconds = idle_seconds
        self._changed = threading.Condition()
        self._wanted: deque[Download] = deque()
        self._ahead: deque[Download] = deque()
        self._thread_count = 0
        self._idle_count = 0
        self._is_closed = False

    def submit(self, download: Download, *, is_ahead: bool) -> bool:
        queue = self._ahead if is_ahead else self._wanted
        with self._changed:
            if self._is_closed or len(queue) >= self._max_waiting or not self._have_thread():
                return False
            queue.append(download)
            self._changed.notify()
            return True

    def _have_thread(self) -> bool:
        """Whether there is a thread for one more download, sooner or later."""
        is_one_idle = self._idle_count > len(self._wanted) + len(self._ahead)
        if not is_one_idle and self._thread_count < self._max_threads:
            try:
                threading.Thread(target=self._work, name="remote-download", daemon=True).start()
                self._thread_count += 1
            except RuntimeError:  # the system has no more of them
                return self._thread_count > 0
        return True

    def hurry(self, download: Download) -> None:
        with self._changed:
            if download in self._ahead:
                self._ahead.remove(download)
                self._wanted.append(download)

    def close(self) -> None:
        """What runs comes to its end, unattended; what waits is abandoned."""
        with self._changed:
            self._is_closed = True
            abandoned = [*self._wanted, *self._ahead]
            self._wanted.clear()
            self._ahead.clear()
            self._changed.notify_all()
        for download in abandoned:
            download.abandon()

    def _work(self) -> None:
        while (download := self._next()) is not None:
            download.run()

    def _next(self) -> Download | None:
        """Waits for work; None when the thread is to end, which is then counted out."""
        with self._changed:
            while not self._is_closed:
                if self._wanted:
                    return self._wanted.popleft()
                if self._ahead:
                    return self._ahead.popleft()
                self._idle_count += 1
                was_notified = self._changed.wait(self._idle_seconds)
                self._idle_count -= 1
                if not was_notified and not self._wanted and not self._ahead:
                    break
            self._thread_count -= 1
            return None
