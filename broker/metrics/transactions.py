"""TransactionMarkerChannelManager's metrics: markers and ends of transactions that wait."""

from collections.abc import Callable

from broker.metrics.family import Family, gauge
from protocol.lazy_dataclass import lazy_dataclass

_PREFIX = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"


@lazy_dataclass(slots=True)
class MarkerFigures:
    """Counts of markers whose partition has no leader, and of ended transactions whose record waits to be written
    again."""

    without_leader: int = 0
    unwritten_ends: Callable[[], int] = lambda: 0

    def families(self) -> list[Family]:
        """Return the metrics under Kafka's names."""
        return [
            gauge(
                f"{_PREFIX}unknowndestinationqueuesize",
                "Transaction markers whose partition has no leader",
                lambda: self.without_leader,
            ),
            gauge(
                f"{_PREFIX}logappendretryqueuesize",
                "Ended transactions whose last record waits to be written",
                lambda: self.unwritten_ends(),
            ),
        ]
