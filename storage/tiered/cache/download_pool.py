"""Thread pool for downloads, so that a download continues when its reader stops waiting.

Downloads with a waiting reader run before prefetches. Threads start on demand, end after an idle time, and do not keep
the process alive.
"""

import threading
from collections import deque
from typing import Protocol

_IDLE_SECONDS = 10.0


class Download(Protocol):
    def run(self) -> None:
        """Download the chunks; must not raise."""
        ...

    def abandon(self) -> None:
        """Fail the chunks; called instead of `run` if the pool was closed first."""
        ...


class Downloads(Protocol):
    """The pool as a chunk cache uses it."""

    def submit(self, download: Download, *, is_prefetch: bool) -> bool:
        """Queue a download; False if the queue is full or the pool closed, and then neither method is called."""
        ...

    def prioritize(self, download: Download) -> None:
        """Move a prefetch to the front queue because a reader waits for it; no effect if it is running."""
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

    def submit(self, download: Download, *, is_prefetch: bool) -> bool:
        queue = self._ahead if is_prefetch else self._wanted
        with self._changed:
            if self._is_closed or len(queue) >= self._max_waiting or not self._have_thread():
                return False
            queue.append(download)
            self._changed.notify()
            return True

    def _have_thread(self) -> bool:
        """Whether a thread will take one more download."""
        is_one_idle = self._idle_count > len(self._wanted) + len(self._ahead)
        if not is_one_idle and self._thread_count < self._max_threads:
            try:
                threading.Thread(target=self._work, name="remote-download", daemon=True).start()
                self._thread_count += 1
            except RuntimeError:  # no more threads
                return self._thread_count > 0
        return True

    def prioritize(self, download: Download) -> None:
        with self._changed:
            if download in self._ahead:
                self._ahead.remove(download)
                self._wanted.append(download)

    def close(self) -> None:
        """Let running downloads finish, abandon queued ones."""
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
        """Wait for a download; None if the thread must end."""
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
