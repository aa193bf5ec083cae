"""The two brokers under comparison, as processes whose cost can be read."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import psutil

from broker.authorizer.standard import STANDARD_AUTHORIZER
from tests.support.certificates import CertificateAuthority
from tests.support.kafka.apache_kafka import apache_kafka, unavailable_reason
from tests.support.kafka.java_options import OPTIMIZED
from tests.support.processes.ottla_node import OttlaNode

# Large enough to avoid rolls and deletions during a run, and equal for both brokers. The logs of deleted topics are
# removed at once, so that the next run writes to their page cache instead of new memory.
SETTINGS = {
    "num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.check.interval.ms": "3600000",
    "log.segment.delete.delay.ms": "0",
}
NOTHING_MORE: Mapping[str, str] = MappingProxyType({})
AUTHORIZED = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
"""Settings under which the anonymous client and the node itself are judged by ACLs, once resources have some."""


@dataclass(frozen=True)
class Cpu:
    """Processor time of brokers, in seconds."""

    user: float
    system: float

    @classmethod
    def of(cls, process: psutil.Process) -> "Cpu":
        """Return that of a running process so far."""
        times = process.cpu_times()
        return cls(float(times.user), float(times.system))

    @property
    def total(self) -> float:
        return self.user + self.system

    def __add__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.user + other.user, self.system + other.system)

    def __sub__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.user - other.user, self.system - other.system)


@dataclass
class Side:
    """One running broker: its address and process, and settings of librdkafka that clients need."""

    name: str
    bootstrap: str
    process: psutil.Process
    client: Mapping[str, str] = field(default_factory=dict)

    def cpu(self) -> Cpu:
        """Return the processor time so far."""
        return Cpu.of(self.process)

    def cpu_s(self) -> float:
        """Return the processor time so far, user and system."""
        return self.cpu().total

    def age_s(self) -> float:
        """Return the seconds since the start of the process, to a hundredth."""
        after_name = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        started_s = int(after_name[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s

    def rss_anon_mb(self) -> float:
        """Return the anonymous resident memory in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        kilobytes = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:"))
        return kilobytes / 1000


class Maker(Protocol):
    """A context manager that runs one node in a directory, with more settings of the broker and of its clients."""

    __name__: str

    def __call__(
        self, directory: Path, more: Mapping[str, str] = ..., client: Mapping[str, str] = ...
    ) -> contextlib.AbstractContextManager[Side]: ...


@dataclass(frozen=True)
class TlsSettings:
    """Settings under which clients use TLS on the only listener: those of brokers, and of librdkafka."""

    broker: Mapping[str, str]
    client: Mapping[str, str]


def tls_settings(directory: Path) -> TlsSettings:
    """Write keys of a new authority to `directory`: elliptic curves, as most brokers have today."""
    authority = CertificateAuthority()
    trusted = directory / "authority.pem"
    trusted.write_text(authority.pem)
    keys = authority.issue("broker", "127.0.0.1").write_pem(directory / "broker.pem")
    broker = {
        "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trusted),
    }
    return TlsSettings(broker, {"security.protocol": "ssl", "ssl.ca.location": str(trusted)})


@contextlib.contextmanager
def ottla(
    directory: Path, more: Mapping[str, str] = NOTHING_MORE, client: Mapping[str, str] = NOTHING_MORE
) -> Iterator[Side]:
    """Run Ottla, one node, with `more` settings."""
    with OttlaNode(directory, {**SETTINGS, **more}) as node:
        yield Side("ottla", node.bootstrap, psutil.Process(node.pid), client)


@contextlib.contextmanager
def kafka(
    directory: Path, more: Mapping[str, str] = NOTHING_MORE, client: Mapping[str, str] = NOTHING_MORE
) -> Iterator[Side]:
    """Run Apache Kafka, one node with a heap of 1 GB (its scripts' default), with `more` settings."""
    before = {child.pid for child in psutil.Process().children()}
    with apache_kafka(directory, {**SETTINGS, **more}, options=OPTIMIZED) as bootstrap:
        (started,) = [child for child in psutil.Process().children() if child.pid not in before]
        yield Side("kafka", bootstrap, started, client)


def kafka_unavailable() -> str | None:
    """Return the reason for which Apache Kafka cannot be measured here, or None."""
    return unavailable_reason()
