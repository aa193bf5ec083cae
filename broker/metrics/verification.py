"""AddPartitionsToTxnManager's metrics: the questions of partition leaders to transaction coordinators (KIP-890)."""

from broker.metrics.family import Family, Sample, counter
from protocol.lazy_dataclass import lazy_dataclass

_PREFIX = "kafka_server_addpartitionstotxnmanager_"


@lazy_dataclass(slots=True)
class VerificationFigures:
    """Counts of partitions that were not confirmed, of questions, and their total time in ms."""

    failures: int = 0
    verifications: int = 0
    elapsed_ms: float = 0.0

    def families(self) -> list[Family]:
        """Return the metrics under Kafka's names."""
        return [
            counter(
                f"{_PREFIX}verificationfailurerate_total",
                "Partitions that transaction coordinators did not confirm",
                lambda: self.failures,
            ),
            Family(
                f"{_PREFIX}verificationtimems",
                "Milliseconds until a transaction coordinator confirmed partitions",
                "summary",
                lambda: [Sample(self.verifications, suffix="_count"), Sample(self.elapsed_ms, suffix="_sum")],
            ),
        ]
