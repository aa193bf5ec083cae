import threading

from storage.tiered.cache.download_pool import DownloadPool


class Job:
    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self._log = log
        self.began = threading.Event()
        self.release = threading.Event()
        self.done = threading.Event()

    def run(self) -> None:
        self.began.set()
        assert self.release.wait(10)
        self._log.append(self._name)
        self.done.set()

    def abandon(self) -> None:
        self._log.append(f"{self._name} abandoned")

    def free(self) -> "Job":
        self.release.set()
        return self


def test_download_with_waiting_reader_runs_first() -> None:
    log: list[str] = []
    pool = DownloadPool(threads=1, max_waiting=10)
    running, ahead, hurried, wanted = (
        Job("running", log),
        *(Job(name, log).free() for name in ("ahead", "now", "wanted")),
    )
    assert pool.submit(running, is_prefetch=False)
    assert running.began.wait(10)
    assert pool.submit(ahead, is_prefetch=True)
    assert pool.submit(hurried, is_prefetch=True)
    assert pool.submit(wanted, is_prefetch=False)
    pool.prioritize(hurried)
    running.release.set()
    assert ahead.done.wait(10)
    assert log == ["running", "wanted", "now", "ahead"]
    pool.close()


def test_threads_are_bounded_and_started_on_demand() -> None:
    log: list[str] = []
    pool = DownloadPool(threads=2, max_waiting=10)
    assert pool._thread_count == 0
    jobs = [Job(str(number), log) for number in range(3)]
    for job in jobs:
        pool.submit(job, is_prefetch=False)
    assert jobs[0].began.wait(10)
    assert jobs[1].began.wait(10)
    assert not jobs[2].began.is_set()
    assert pool._thread_count == 2
    for job in jobs:
        job.release.set()
    assert jobs[2].done.wait(10)
    pool.close()


def test_each_queue_is_bounded() -> None:
    log: list[str] = []
    pool = DownloadPool(threads=1, max_waiting=1)
    running = Job("running", log)
    pool.submit(running, is_prefetch=False)
    assert running.began.wait(10)
    last = Job("c", log).free()
    assert pool.submit(last, is_prefetch=True)
    assert not pool.submit(Job("x", log), is_prefetch=True)
    assert pool.submit(Job("b", log).free(), is_prefetch=False)
    assert not pool.submit(Job("x", log), is_prefetch=False)
    running.release.set()
    assert last.done.wait(10)
    assert log == ["running", "b", "c"]
    pool.close()


def test_closed_pool_abandons_queue_and_rejects_downloads() -> None:
    log: list[str] = []
    pool = DownloadPool(threads=1, max_waiting=10)
    running = Job("running", log)
    pool.submit(running, is_prefetch=False)
    assert running.began.wait(10)
    pool.submit(Job("wanted", log), is_prefetch=False)
    pool.submit(Job("ahead", log), is_prefetch=True)
    pool.close()
    assert log == ["wanted abandoned", "ahead abandoned"]
    assert not pool.submit(Job("late", log), is_prefetch=False)
    running.release.set()
    assert running.done.wait(10)


def test_idle_threads_end_and_new_ones_start() -> None:
    log: list[str] = []
    pool = DownloadPool(threads=1, max_waiting=10, idle_seconds=0.001)
    for name in "ab":
        job = Job(name, log).free()
        pool.submit(job, is_prefetch=False)
        assert job.done.wait(10)
        for thread in threading.enumerate():
            if thread.name == "remote-download" and pool._thread_count:
                thread.join(10)
        assert pool._thread_count == 0
    assert log == ["a", "b"]
