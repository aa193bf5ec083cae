"""Settings of remote storage, from the configuration."""

from broker.config.broker_config import BrokerConfig
from broker.fetch.remote_reads.reads import RemoteReadSettings
from broker.runtime.remote_log.settings import RemoteLogSettings
from storage.tiered.stores.backoff import Backoff


def log_settings(config: BrokerConfig) -> RemoteLogSettings:
    """Return the settings of tasks that copy and delete segments."""
    window = config.remote_log_manager_copy_quota_window_num * config.remote_log_manager_copy_quota_window_size_seconds
    return RemoteLogSettings(
        copier_threads=config.remote_log_manager_copier_thread_pool_size,
        expiration_threads=config.remote_log_manager_expiration_thread_pool_size,
        follower_threads=config.remote_log_manager_follower_thread_pool_size,
        task_interval_ms=config.remote_log_manager_task_interval_ms,
        backoff=Backoff(
            config.remote_log_manager_task_retry_backoff_ms,
            config.remote_log_manager_task_retry_backoff_max_ms,
            config.remote_log_manager_task_retry_jitter,
        ),
        custom_metadata_max_bytes=config.remote_log_metadata_custom_metadata_max_bytes,
        copy_bytes_per_second=config.remote_log_manager_copy_max_bytes_per_second,
        copy_quota_window_ms=window * 1000,
        remover_interval_ms=config.ottla_remote_partition_remover_task_interval_ms,
        grace_ms=config.ottla_remote_log_collection_grace_ms,
        unknown_topic_retention_ms=config.ottla_remote_log_unknown_topic_retention_ms,
    )


def read_settings(config: BrokerConfig) -> RemoteReadSettings:
    """Return the settings of consumers' reads from remote storage."""
    return RemoteReadSettings(
        wait_max_ms=config.remote_fetch_max_wait_ms,
        reads_max=config.remote_log_reader_threads + config.remote_log_reader_max_pending_tasks,
        bytes_per_second=config.remote_log_manager_fetch_max_bytes_per_second,
        kept_ms=config.ottla_remote_fetch_result_retention_ms,
        kept_bytes=config.ottla_remote_fetch_result_max_bytes,
        hole_patience_ms=config.ottla_remote_log_hole_patience_ms,
    )
