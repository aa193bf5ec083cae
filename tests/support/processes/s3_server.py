"""A real S3 server as a process: the Versity S3 Gateway (Apache License 2.0) on a directory, built with Go once.

If something is missing on the machine (Go, a reachable module proxy), `unavailable_reason` returns the reason, so that
a test can skip with it instead of failing. The build stays in `build/s3`.
"""

import fcntl
import os
import secrets
import shutil
import signal
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import TracebackType

from storage.tiered.stores.s3 import S3Settings
from tests.support.kafka.apache_kafka import REPOSITORY, free_ports, wait_for_port
from tests.support.processes.suspension import suspend

MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
BUILD = REPOSITORY / "build" / "s3"
PROGRAM = BUILD / "versitygw"
STAMP = BUILD / ".built"
REGION = "us-east-1"
BUCKET = "ottla-tests"


@cache
def unavailable_reason() -> str | None:
    """Return why there can be no server on this machine, None if it is built; may access a module proxy."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / ".lock").open("w") as lock:  # several test processes may build it at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        return None if _is_built() else _build()


def _is_built() -> bool:
    return PROGRAM.exists() and STAMP.exists() and STAMP.read_text() == MODULE


def _build() -> str | None:
    if shutil.which("go") is None:
        return "go is not on PATH"
    built = subprocess.run(
        ["go", "install", "-trimpath", "-ldflags=-s -w", MODULE],
        env={**os.environ, "GOBIN": str(BUILD)},
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode != 0:
        return f"go install {MODULE} failed: {built.stderr.strip()[-500:]}"
    STAMP.write_text(MODULE)
    return None


class S3Server:
    """One server with one bucket in `directory`, on a port that stays the same over restarts.

    A context manager that starts it; it ends with the context, and with the thread that started it, whatever happens.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (self.port,) = free_ports(1)
        self.access_key_id = secrets.token_hex(10)
        self.secret_access_key = secrets.token_hex(20)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def settings(self) -> S3Settings:
        """Return settings with small parts and fast failure detection."""
        return S3Settings(
            bucket_name=BUCKET,
            region=REGION,
            endpoint_url=self.endpoint,
            path_style_access_enabled=True,
            multipart_upload_part_size=5 * 1024 * 1024,
            access_key_id=self.access_key_id,
            secret_access_key=self.secret_access_key,
        )

    @property
    def impatient_settings(self) -> S3Settings:
        """Return `settings` with a single attempt."""
        return replace(self.settings, max_attempts=1)

    def node_settings(self, prefix: str = "rsm.config.") -> dict[str, str]:
        """Return the settings as a node's configuration."""
        return {
            f"{prefix}storage.s3.bucket.name": BUCKET,
            f"{prefix}storage.s3.region": REGION,
            f"{prefix}storage.s3.endpoint.url": self.endpoint,
            f"{prefix}storage.s3.path.style.access.enabled": "true",
            f"{prefix}storage.s3.multipart.upload.part.size": str(5 * 1024 * 1024),
            f"{prefix}storage.aws.access.key.id": self.access_key_id,
            f"{prefix}storage.aws.secret.access.key": self.secret_access_key,
        }

    @property
    def objects(self) -> Path:
        """Directory of the objects, as files named by their keys."""
        return self.directory / "data" / BUCKET

    def start(self) -> "S3Server":
        """Start the server, also after `stop`, with the same port and objects."""
        assert self._process is None, "the server is running"
        for name in ("data", "metadata"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        self.objects.mkdir(exist_ok=True)
        with (self.directory / "s3.log").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *(
                        *_ends_with_us(),
                        str(PROGRAM),
                        "--quiet",
                        "--keep-alive",
                        "--region",
                        REGION,
                        "--port",
                        f"127.0.0.1:{self.port}",
                    ),
                    *("posix", "--sidecar", str(self.directory / "metadata"), str(self.directory / "data")),
                ],
                env={"ROOT_ACCESS_KEY": self.access_key_id, "ROOT_SECRET_KEY": self.secret_access_key},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_for_port(self.port, self._process)
        except AssertionError as error:
            self.stop()
            raise AssertionError(f"{error}\n{(self.directory / 's3.log').read_text(errors='replace')}") from None
        return self

    def stop(self) -> None:
        """Kill the server."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Accept connections without responding, until `resume`."""
        assert self._process is not None
        suspend(self._process.pid)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> "S3Server":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _ends_with_us() -> list[str]:
    """Return a command prefix that makes the kernel kill the process when the starting thread ends."""
    return ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
