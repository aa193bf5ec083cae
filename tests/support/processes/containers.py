"""Containers without an image registry: a private engine, and substitutes for base images.

The engine and its compose plugin come from Debian's packages (the plugin of Debian 13 is one static program). A minimal
Debian without the files that `debian:trixie-slim` leaves out replaces that image. A Go build replaces the S3 server's
image, and Debian's packages those of Prometheus and Alertmanager. Grafana has no package, so no substitute.
`unavailable_reason` and `compose_reason` return what the machine lacks, in one sentence.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import TracebackType

from tests.support.kafka.apache_kafka import REPOSITORY
from tests.support.processes import s3_server

BUILD = REPOSITORY / "build" / "containers"
PLUGIN = BUILD / "config" / "cli-plugins" / "docker-compose"
OPT_IN = "OTTLA_COMPOSE"
_RELEASE = "trixie"
"""The Debian release of the images; the first whose docker-compose package is the plugin for Docker's own client."""
BASE_IMAGE = f"debian:{_RELEASE}-slim"
S3_IMAGE = "versity/versitygw:v1.8.0"
MONITORING_IMAGES = (
    ("prom/prometheus:v3.5.0", "prometheus", "/prometheus"),
    ("prom/alertmanager:v0.28.1", "prometheus-alertmanager", "/alertmanager"),
)
"""Image, Debian package and program, directory of data."""
_LEFT_OUT = ("doc", "groff", "info", "linda", "lintian", "locale", "man")
"""Folders of /usr/share that the slim images leave out."""
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_START_TIMEOUT_S = 30


# ---- compose, which reads a file without an engine


@cache
def compose_reason() -> str | None:
    """Return the reason for which there is no compose on this machine, or None once it is in `build/`; may download it
    from Debian.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / ".lock").open("w") as lock:  # several test processes may need it at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if PLUGIN.exists():
            return None
        if (missing := _missing("apt-get", "dpkg-deb")) is not None:
            return missing
        return _fetch_compose()


def _debian_mirror() -> str | None:
    """Return the URI of the Debian archive that apt on this machine is configured with; None without one."""
    fields = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(COMPONENT) $(REPO_URI)", "Identifier: Packages"]
    listed = subprocess.run(fields, capture_output=True, text=True, check=False)
    targets = (line.split(" ", 2) for line in listed.stdout.splitlines())
    uris = [uri for origin, component, uri in targets if (origin, component) == ("Debian", "main")]
    return next((uri for uri in uris if "security" not in uri), None)


def _fetch_compose() -> str | None:
    mirror = _debian_mirror()
    if mirror is None:
        return "apt knows no Debian archive; run `apt-get update`"
    apt = BUILD / "apt"
    for directory in ("lists/partial", "cache/archives/partial", "unpacked"):
        (apt / directory).mkdir(parents=True, exist_ok=True)
    (apt / "sources.list").write_text(f"deb [signed-by={_KEYRING}] {mirror} {_RELEASE} main\n")
    (apt / "apt.conf").write_text(
        f'Dir::Etc::SourceList "{apt}/sources.list";\nDir::Etc::SourceParts "-";\n'
        f'Dir::State::Lists "{apt}/lists";\nDir::Cache "{apt}/cache";\nAPT::Sandbox::User "root";\n'
    )
    environment = {**os.environ, "APT_CONFIG": str(apt / "apt.conf")}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "download", "-qq", "docker-compose"]):
        done = subprocess.run(command, cwd=apt, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"{' '.join(command)} failed: {done.stderr.strip()[-300:]}"
    (package,) = apt.glob("docker-compose_*.deb")
    subprocess.run(["dpkg-deb", "-x", str(package), str(apt / "unpacked")], check=True)
    PLUGIN.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(apt / "unpacked/usr/libexec/docker/cli-plugins/docker-compose", PLUGIN)
    shutil.rmtree(apt)
    return None


def compose_document(*arguments: str, file: Path) -> dict[str, object]:
    """Return compose's resolved version of a file. Raises AssertionError with the output if compose rejects it."""
    done = subprocess.run(
        [str(PLUGIN), "--file", str(file), *arguments, "config", "--format", "json"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    document = json.loads(done.stdout.replace("$$", "$"))  # compose escapes what containers get
    assert isinstance(document, dict)
    return document


# ---- the engine


@cache
def unavailable_reason() -> str | None:
    """Return the reason for which images cannot be built and run on this machine, or None."""
    if os.environ.get(OPT_IN) != "1":
        return f"it takes minutes and root: set {OPT_IN}=1 to run it"
    if os.geteuid() != 0:
        return "a private engine needs root"
    if (missing := _missing("docker", "dockerd", "containerd", "mmdebstrap")) is not None:
        return f"{missing} (install Debian's docker.io and mmdebstrap)"
    return compose_reason() or s3_server.unavailable_reason()


def _missing(*programs: str) -> str | None:
    return next((f"{program} is not on PATH" for program in programs if shutil.which(program) is None), None)


class Engine:
    """A docker daemon in `directory`, with the substitutes as its images. A context manager that starts and ends it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._socket = directory / "docker.sock"
        self._daemon: subprocess.Popen[bytes] | None = None
        self._forwarding = ""
        self.variables: dict[str, str] = {}
        """Environment of all commands."""

    def __enter__(self) -> "Engine":
        self._forwarding = _FORWARDING.read_text()
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "dockerd.log").open("ab") as output:
            self._daemon = subprocess.Popen(
                [
                    *("dockerd", "--host", f"unix://{self._socket}", "--pidfile", str(self.directory / "pid")),
                    *("--data-root", str(self.directory / "root"), "--exec-root", str(self.directory / "exec")),
                    *("--ip", "127.0.0.1"),  # no file under test publishes a port to other hosts
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            self._wait()
            self._stand_in_for_debian()
            self._stand_in_for_s3()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def docker(self, *arguments: str, check: bool = True, timeout_s: float = 1800) -> str:
        """Return the output of a command, with the classic builder: the other needs a plugin and a registry."""
        done = subprocess.run(
            ["docker", *arguments],
            env=self.environment,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        assert done.returncode == 0 or not check, (
            f"docker {' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
        return done.stdout

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            **os.environ,
            "DOCKER_HOST": f"unix://{self._socket}",
            "DOCKER_CONFIG": str(BUILD / "config"),
            "DOCKER_BUILDKIT": "0",
            **self.variables,
        }

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while subprocess.run(["docker", "ps"], env=self.environment, capture_output=True, check=False).returncode != 0:
            assert self._daemon is not None
            log = (self.directory / "dockerd.log").read_text(errors="replace")[-2000:]
            assert self._daemon.poll() is None, f"dockerd ended: {log}"
            assert time.monotonic() < deadline, f"dockerd does not respond: {log}"
            time.sleep(0.1)

    def _stand_in_for_debian(self) -> None:
        context = self._context("debian")
        root = BUILD / f"{_RELEASE}-slim.tar"
        if not root.exists():
            aside = root.with_suffix(".part.tar")
            excluded = [f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in _LEFT_OUT]
            made = ["mmdebstrap", "--quiet", "--variant=minbase", *excluded, _RELEASE, str(aside)]
            subprocess.run(made, check=True)
            aside.rename(root)
        os.link(root, context / "root.tar")
        # Builds trust the authorities that this machine trusts.
        shutil.copy(_CERTIFICATES, context / "machine.pem")
        (context / "Dockerfile").write_text(
            "FROM scratch\nADD root.tar /\nCOPY machine.pem /etc/machine.pem\n"
            'ENV PIP_CERT=/etc/machine.pem\nCMD ["bash"]\n'
        )
        self.docker("build", "--quiet", "--tag", BASE_IMAGE, str(context))

    def _stand_in_for_s3(self) -> None:
        context = self._context("s3")
        shutil.copy(s3_server.PROGRAM, context)
        (context / "Dockerfile").write_text(
            f"FROM {BASE_IMAGE}\n"
            "RUN apt-get update -qq && apt-get install -qq --no-install-recommends busybox"
            " && ln -s /bin/busybox /usr/local/bin/wget\n"
            'COPY versitygw /app/versitygw\nENTRYPOINT ["/app/versitygw"]\n'
        )
        self.docker("build", "--quiet", "--tag", S3_IMAGE, str(context))

    def build_monitoring_images(self) -> None:
        """Build substitutes for Prometheus and Alertmanager, under the names that the compose file has."""
        for image, package, data in MONITORING_IMAGES:
            context = self._context(package)
            (context / "Dockerfile").write_text(
                f"FROM {BASE_IMAGE}\n"
                f"RUN apt-get update -qq && apt-get install -qq --no-install-recommends {package}"
                f" && mkdir {data} && chown nobody {data}\n"
                f'USER nobody\nVOLUME {data}\nENTRYPOINT ["/usr/bin/{package}"]\n'
            )
            self.docker("build", "--quiet", "--tag", image, str(context))

    def _context(self, name: str) -> Path:
        context = self.directory / "context" / name
        context.mkdir(parents=True, exist_ok=True)
        return context

    def _stop(self) -> None:
        if self._daemon is not None:
            self._daemon.send_signal(signal.SIGTERM)
            self._daemon.wait(60)
            self._daemon = None
        _FORWARDING.write_text(self._forwarding)
        subprocess.run(["ip", "link", "delete", "docker0"], capture_output=True, check=False)


_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
