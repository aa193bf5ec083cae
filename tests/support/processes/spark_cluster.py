"""A standalone Spark cluster on loopback, as processes of the installed PySpark: a master, and workers with one core
each, whose executors run in directories of their own.

The processes do not know the location of this repository: executors need installed or shipped packages.
"""

import contextlib
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from tests.support.kafka.apache_kafka import free_ports, stop, wait_for_port
from tests.support.processes.ottla_node import clean_environment
from tests.support.processes.spark_session import QUICK_JVM

PATIENCE_S = 600
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_REGISTERED = "Successfully registered with master"
_OF_THE_CALLER = re.compile(r"SPARK_|PYSPARK_|PYTHONPATH|MASTER$")


class SparkCluster:
    """A context manager that starts the cluster in `directory`, and ends all its processes.

    `environment` applies to all processes of the cluster, but not to `spark-submit`.
    """

    def __init__(self, directory: Path, workers: int = 2, environment: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.workers = workers
        self.events = directory / "events"
        self._environment = dict(environment or {})
        (self._port,) = free_ports(1)
        self._daemons: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    # Daemons

    def __enter__(self) -> "SparkCluster":
        try:
            self._start()
        except BaseException as error:
            self._stop()
            if isinstance(error, AssertionError):
                raise AssertionError(f"{error}\n{self.logs()}") from None
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        if error is not None:
            error.add_note(self.logs())

    def _start(self) -> None:
        for name in ("conf", "scratch", "events"):
            (self.directory / name).mkdir(parents=True)
        here = ("--host", "127.0.0.1", "--webui-port", "0")
        master = self._daemon("master", _MASTER, *here, "--port", str(self._port))
        wait_for_port(self._port, master)
        for number in range(self.workers):
            name = f"worker-{number}"
            place = ("--work-dir", str(self.directory / name))
            self._daemon(name, _WORKER, *here, "--cores", "1", "--memory", "1g", *place, self.url)
        for number, worker in enumerate(self._daemons[1:]):
            self._wait_until_registered(f"worker-{number}", worker)

    def _daemon(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        home = self.directory / name
        home.mkdir()
        with self._log(name).open("ab") as output:
            daemon = subprocess.Popen(
                [*_ends_with_us(), str(_spark_home() / "bin" / "spark-class"), *command],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=home,
                env=self._clean() | self._environment,
            )
        self._daemons.append(daemon)
        return daemon

    def _clean(self) -> dict[str, str]:
        inherited = {key: value for key, value in clean_environment().items() if not _OF_THE_CALLER.match(key)}
        return inherited | {
            "SPARK_HOME": str(_spark_home()),
            "SPARK_CONF_DIR": str(self.directory / "conf"),
            "SPARK_LOCAL_DIRS": str(self.directory / "scratch"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
        }

    def _wait_until_registered(self, name: str, worker: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while _REGISTERED not in self._log(name).read_text(errors="replace"):
            assert worker.poll() is None, f"{name} exited with {worker.returncode}"
            assert time.monotonic() < deadline, f"{name} did not register with the master"
            time.sleep(0.02)

    def _stop(self) -> None:
        """Stop the master first, so that it starts no executor; kill the rest."""
        for daemon in self._daemons:
            stop(daemon)
        left = list(self._at_work())
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=20)

    def _at_work(self) -> Iterator[psutil.Process]:
        """Return executors, their Python workers, and drivers: processes with a working directory in the cluster."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if self.directory in Path(process.cwd()).parents:
                    yield process

    # Applications

    def submit(
        self,
        script: Path,
        *arguments: str,
        options: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run `spark-submit` to its end, from a directory of its own; its driver writes to the event log."""
        home = self.directory / "submitted"
        home.mkdir(exist_ok=True)
        submit = [str(_spark_home() / "bin" / "spark-submit"), *self._options(settings or {}), *options]
        return subprocess.run(
            [*submit, str(script), *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            cwd=home,
            env=self._clean() | {"SPARK_SUBMIT_OPTS": QUICK_JVM} | dict(environment or {}),
        )

    def _options(self, settings: Mapping[str, str]) -> Iterator[str]:
        yield from ("--master", self.url, "--deploy-mode", "client")
        yield from ("--driver-memory", "512m", "--executor-memory", "512m")
        given = {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.extraJavaOptions": QUICK_JVM,
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # start only after all workers have registered
            "spark.cores.max": str(self.workers),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self.events.as_uri(),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
        }
        for key, value in {**given, **settings}.items():
            yield from ("--conf", f"{key}={value}")

    # Events

    def happened(self, event: str) -> list[dict[str, Any]]:
        """Return the events of a kind, such as `SparkListenerTaskEnd`, of all finished applications."""
        lines = (line for path in sorted(self.events.iterdir()) for line in path.read_text().splitlines())
        return [found for found in map(json.loads, lines) if found["Event"] == event]

    def executors(self) -> dict[str, list[str]]:
        """Return the numbers of the executors that each worker started, of all applications."""
        return {
            f"worker-{number}": sorted(path.name for path in (self.directory / f"worker-{number}").glob("app-*/*"))
            for number in range(self.workers)
        }

    def kill_executors(self) -> int:
        """Send SIGKILL to all executors and their Python workers; return the number of executors."""
        processes = [child for worker in self._daemons[1:] for child in _descendants(worker.pid)]
        executors = [each for each in processes if _EXECUTOR in _command(each)]
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return len(executors)

    def logs(self) -> str:
        """Return the ends of all logs."""
        names = ["master", *(f"worker-{number}" for number in range(self.workers))]
        paths = [path for path in map(self._log, names) if path.exists()]
        paths += sorted(self.directory.glob("worker-*/app-*/*/stderr"))
        return "\n".join(f"--- {path}\n{path.read_text(errors='replace')[-2000:]}" for path in paths)

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"


def _spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def _descendants(pid: int) -> Iterable[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


def _ends_with_us() -> list[str]:
    """Return a command prefix that makes the kernel kill the process when the starting thread ends."""
    return ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
