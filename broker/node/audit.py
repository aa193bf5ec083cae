"""The audit log of a node, off without `ottla.audit.log`."""

import asyncio
import random
from pathlib import Path
from typing import Final

from broker.audit.trail import AuditLog
from broker.audit.writer import AuditWriter
from broker.bounded_log import BoundedLog
from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.metrics.family import Family

MODE: Final = 0o640
_KEY: Final = "ottla.audit.log"


class AuditPart:
    """The trail that decisions go to, and the thread that writes them. `trail` is None where the log is off."""

    def __init__(self, config: BrokerConfig, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self.trail: AuditLog | None = None
        self._writer: AuditWriter | None = None
        self._path = Path(config.ottla_audit_log)
        if not config.ottla_audit_log:
            return
        file = BoundedLog(
            self._path,
            max_bytes=config.ottla_audit_log_max_bytes,
            kept_files=config.ottla_audit_log_kept_files,
            mode=MODE,
        )
        self._writer = AuditWriter(file, config.ottla_audit_queued_max_lines, clock.now_ms)
        rate = config.ottla_audit_allowed_sample_rate
        self.trail = AuditLog(self._writer, rate, clock.now_ms, random.random, loop.call_soon)

    def start(self) -> None:
        """Start the thread. Blocks. Raise ConfigError for a path that cannot be written."""
        if self._writer is None:
            return
        try:
            with self._path.open("ab"):
                self._path.chmod(MODE)
        except OSError as error:
            raise ConfigError(_KEY, f"{_KEY}: {self._path} cannot be written: {error.strerror}.") from error
        self._writer.start()

    async def stop(self) -> None:
        """Write what is collected and queued."""
        if self.trail is not None and self._writer is not None:
            self.trail.flush()
            await asyncio.to_thread(self._writer.stop)

    def families(self) -> list[Family]:
        """Return the metrics; none where the log is off."""
        return [] if self._writer is None else self._writer.families()
