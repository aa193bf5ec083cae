"""Options of the Java processes of tests: compilers and collectors that suit short runs, and an archive of classes.

Half of the CPU time of a tool, and of a node's start, is the time in which Java loads and compiles classes.
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
JARS = REPOSITORY / "build" / "kafka" / "jars"
PROGRAM = REPOSITORY / "tests" / "interop" / "java" / "ClassArchive.java"
ARCHIVE = JARS.parent / "classes.jsa"
ARCHIVE_TIMEOUT_S = 180

OPTIMIZED: tuple[str, ...] = ()
"""Java's own choice, for measurements of speed."""

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""The first compiler and one thread for garbage, for processes that end within a minute."""


def quick() -> tuple[str, ...]:
    """Return the options for short runs, with the archive of classes if there is one."""
    if ARCHIVE.exists() and ARCHIVE.stat().st_size:
        # Java ignores an archive of another version or class path, and must not report that in a tool's output.
        return (*QUICK, f"-XX:SharedArchiveFile={ARCHIVE}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
    return QUICK


def write_archive(settings: Mapping[str, str], bootstrap: str) -> None:
    """Write the archive of classes, unless it is newer than the program and the jars' stamp.

    The program runs a node with the settings, which listens on `bootstrap`. After a failure the archive is empty.
    """
    newest = max(path.stat().st_mtime for path in (PROGRAM, JARS / ".resolved"))
    if ARCHIVE.exists() and ARCHIVE.stat().st_mtime >= newest:
        return
    fresh, properties = ARCHIVE.with_suffix(".new"), JARS.parent / "classes.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = ["java", *QUICK, "-Xmx512m", f"-XX:ArchiveClassesAtExit={fresh}", "-cp", f"{JARS}/*", str(PROGRAM)]
    fresh.unlink(missing_ok=True)
    try:
        subprocess.run(
            [*command, str(properties), bootstrap], capture_output=True, timeout=ARCHIVE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        fresh.unlink(missing_ok=True)
    if not fresh.exists():
        fresh.touch()
    fresh.rename(ARCHIVE)
