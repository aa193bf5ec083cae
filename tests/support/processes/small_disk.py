"""A file system of a few megabytes that really fills up: a tmpfs in a mount namespace of its own.

A helper process holds the namespace. It ends with this process, and removes the file system, also after a failed test.
"""

import shutil
import subprocess
from functools import cache
from pathlib import Path
from types import TracebackType

_NAMESPACE = ("unshare", "--mount", "--propagation", "private")


@cache
def unavailable_reason() -> str | None:
    """Return the reason why this machine has no such file system, or None."""
    for program in ("unshare", "nsenter", "mount"):
        if shutil.which(program) is None:
            return f"{program} is not on PATH"
    probe = [*_NAMESPACE, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/tmp"]
    tried = subprocess.run(probe, capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"a file system cannot be mounted here: {tried.stderr.strip()}"


class SmallDisk:
    """A context manager; commands that begin with `enter` see the file system at `path`, others an empty directory."""

    def __init__(self, path: Path, size: str) -> None:
        self.path = path
        path.mkdir(parents=True)
        script = 'mount -t tmpfs -o "size=$1" tmpfs "$2" && echo mounted && exec cat'
        self._holder = subprocess.Popen(
            [*_NAMESPACE, "sh", "-c", script, "sh", size, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"mounted\n"

    @property
    def enter(self) -> list[str]:
        """Return the prefix of commands."""
        return ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", "--"]

    @property
    def seen_from_here(self) -> Path:
        """Return the directory's path for this process."""
        return Path(f"/proc/{self._holder.pid}/root{self.path}")

    def __enter__(self) -> "SmallDisk":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._holder.communicate(timeout=20)
