"""`make docs-check`: the blocks of README.md and `docs/` on a clean Debian, one after another.

mmdebstrap makes a minimal Debian of the oldest release with Python 3.11, with the programs that the pages require.
Each group runs in a clone of this repository's last commit or, with Ottla installed from a wheel of that commit, in an
empty directory. It has a root of its own and the network of this machine: `make up` and `pip install` fetch what they
need. So ports 9092 to 9113 must be free. Groups that need Apache Kafka get its jars of this repository's tests.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.docs.blocks import ROOT, Group, all_blocks, groups
from tests.docs.machine import Session, kafka_jars, write_kafka_scripts
from tests.support.kafka import apache_kafka

BUILD = ROOT / "build" / "docs-check"
PACKAGES = "python3,python3-pip,python3-venv,ca-certificates,make,git,curl,kcat,iproute2,procps,openjdk-17-jre-headless"
FROM_HERE = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
"""Files that the network of this machine may need."""
PASSED_ON = ("PIP_", "SSL_", "HTTP_", "HTTPS_", "NO_PROXY", "http_", "https_", "no_proxy")


class CleanMachine:
    """A Debian without Ottla in a folder; a clone of the repository or, with Ottla installed, an empty directory."""

    def __init__(self, root: Path, group: Group) -> None:
        self.root = root
        self._path = "/root/ottla" if "checkout" in group.options else "/root/empty"
        self.directory = root / self._path.removeprefix("/")
        clone = root / "root" / "ottla"
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
        for path in FROM_HERE:
            if Path(path).exists():
                shutil.copy(path, root / path.removeprefix("/"))
        if "checkout" not in group.options:
            self.directory.mkdir()
            self._install("java" in group.needs)
        if "kafka" in group.needs:
            shutil.copytree(kafka_jars(), root / "opt" / "kafka" / "jars")
            write_kafka_scripts(self.directory / "kafka" / "bin", Path("/opt/kafka/jars"))

    def _install(self, with_spark: bool) -> None:
        extra = "[spark]" if with_spark else ""
        commands = (
            "python3 -m venv /opt/ottla && cd /root/ottla"
            " && /opt/ottla/bin/pip --quiet wheel --no-deps --wheel-dir dist ."
            f' && /opt/ottla/bin/pip install --quiet "$(ls "$PWD"/dist/ottla-*.whl){extra}"'
        )
        subprocess.run(["chroot", str(self.root), "bash", "-c", commands], env=dict(self.environment()), check=True)

    def shell(self) -> Sequence[str]:
        own = ("unshare", "--pid", "--fork", "--kill-child", f"--root={self.root}", "--mount-proc")
        return (*own, "bash", "-c", f"cd {self._path} && exec bash --norc --noprofile")

    def environment(self) -> Mapping[str, str]:
        kept = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
        return {**kept, "PATH": "/opt/ottla/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}


def main(wanted: Sequence[str]) -> int:
    """Run the groups whose names contain one of the words, or all; print a line for each. Return the exit code."""
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        print("docs-check needs root and mmdebstrap", file=sys.stderr)
        return 1
    every = groups(all_blocks())
    chosen = [group for group in every if not wanted or any(word in str(group) for word in wanted)]
    if not chosen:
        print(
            f"docs-check has no group with any of these words; its groups: {', '.join(map(str, every))}",
            file=sys.stderr,
        )
        return 1
    BUILD.mkdir(parents=True, exist_ok=True)
    archive = BUILD / "bookworm.tar"
    if not archive.exists():
        aside = archive.with_suffix(".part.tar")
        made = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(aside)]
        subprocess.run(made, check=True)
        aside.rename(archive)
    failed = [group for group in chosen if not _passes(group, archive)]
    return 1 if failed else 0


def _passes(group: Group, archive: Path) -> bool:
    if "kafka" in group.needs and (reason := apache_kafka.unavailable_reason()) is not None:
        print(f"{group}: skipped, {reason}", flush=True)
        return True
    root = BUILD / "root"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    subprocess.run(["tar", "--extract", "--file", str(archive), "--directory", str(root)], check=True)
    try:
        with Session(CleanMachine(root, group)) as session:
            for block in group.blocks:
                session.run(block)
    except AssertionError as error:
        print(f"{group}: FAILED\n{error}", flush=True)
        return False
    print(f"{group}: passed, {len(group.blocks)} blocks", flush=True)
    return True


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
