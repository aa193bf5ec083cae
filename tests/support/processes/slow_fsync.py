"""A library for LD_PRELOAD that delays every fsync of a process: a slow disk for nodes of any implementation."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static void delay(void) {
    const char *text = getenv("FSYNC_DELAY_MS");
    long ms = text ? atol(text) : 0;
    struct timespec pause = {ms / 1000, (ms % 1000) * 1000000L};
    nanosleep(&pause, NULL);
}

int fsync(int fd) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    delay();
    return real(fd);
}

int fdatasync(int fd) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    delay();
    return real(fd);
}
"""


def unavailable_reason() -> str | None:
    """Return the reason for which the library cannot be built on this machine, or None."""
    return None if shutil.which("gcc") else "gcc is not on PATH"


def slow_fsync(directory: Path, delay_ms: int) -> Mapping[str, str]:
    """Build the library in `directory`; return the environment of a process whose fsyncs take `delay_ms` longer."""
    source, library = directory / "slow_fsync.c", directory / "slow_fsync.so"
    source.write_text(_SOURCE)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "FSYNC_DELAY_MS": str(delay_ms)}
