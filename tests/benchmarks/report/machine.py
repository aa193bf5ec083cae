"""Facts about the machine and the programs of a run, and memory that is touched before the first measurement."""

import mmap
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import confluent_kafka

from tests.support.kafka.apache_kafka import JARS, REPOSITORY

RESERVE = 2 << 30
CHUNK = 256 << 20


def facts(run: str) -> Mapping[str, str]:
    """Return what a reader needs to compare another run with this one, by topic; `run` says how much was measured."""
    memory = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    return {
        "Run": run,
        "Date": time.strftime("%Y-%m-%d", time.gmtime()),
        "Commit": _output("git", "-C", str(REPOSITORY), "rev-parse", "--short", "HEAD") or "unknown",
        "Ottla": _output(sys.executable, "-m", "broker", "--version") or "unknown",
        "Apache Kafka": _kafka_version(),
        "Machine": f"{os.cpu_count()} cores ({_processor()}), {int(memory.split()[1]) / (1 << 20):.0f} GiB of memory",
        "System": f"{platform.system()} {platform.release().partition('-')[0]}",
        "Python": f"{platform.python_version()} ({platform.python_compiler()})",
        "Java": (_output("java", "-version") or "none").splitlines()[0],
        "librdkafka": confluent_kafka.libversion()[0],
        "kcat": _kcat_version(),
        "Go": _output("go", "version") or "none",
    }


def touch_memory() -> float:
    """Write to each free page of the machine's memory, but for RESERVE bytes, and release it; return GB.

    A virtual machine may receive its memory from its host at the first touch only, which costs whichever broker touches
    it first.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as toucher:
        return toucher.submit(_touch).result()


def _touch() -> float:
    page, touched = mmap.PAGESIZE, 0
    wanted = max(0, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") - RESERVE)
    held: list[mmap.mmap] = []
    while touched + CHUNK <= wanted:
        held.append(mmap.mmap(-1, CHUNK))
        held[-1][::page] = b"\1" * (CHUNK // page)
        touched += CHUNK
    for chunk in held:
        chunk.close()
    return touched / 1e9


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _kcat_version() -> str:
    found = re.search(r"Version ([\d.]+).*(librdkafka [\d.]+)", _output("kcat", "-V") or "")
    return f"{found[1]} ({found[2]})" if found else "none"


def _kafka_version() -> str:
    found = sorted(JARS.glob("kafka-clients-*.jar"))
    return found[0].stem.removeprefix("kafka-clients-") if found else "none"


def _output(*command: str) -> str | None:
    """Return what a program prints, None if it is missing or fails."""
    if shutil.which(command[0]) is None:
        return None
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    return (done.stdout.strip() or done.stderr.strip()) if done.returncode == 0 else None
