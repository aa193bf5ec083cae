"""Settings of transactions, with Kafka's names (dots as underscores) and defaults."""

from protocol.lazy_dataclass import lazy_dataclass


@lazy_dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Settings of the transaction coordinator. Times are in milliseconds."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_two_phase_commit_enable: bool = False
