"""The configuration of a broker, parsed once, with a typed attribute for every setting that product code reads.

Owns the layers of values (Kafka's precedence: dynamic for this broker, dynamic for the cluster, static, default) and
the settings that several keys decide together. ``load`` supplies the static text, ``cross_checks`` the rules between
keys. A new typed setting is one more row of BrokerConfig; see ``setting``.
"""

from collections.abc import Mapping
from posixpath import abspath
from types import MappingProxyType
from typing import cast

from broker.config.definitions import BROKER_KEYS, broker_key
from broker.config.errors import ConfigError
from broker.config.key import ConfigKey
from broker.config.layers import Layers
from broker.config.listeners import ConfiguredListener, ListenerSettings, plan_listeners
from broker.config.quorum_addresses import (
    ConfiguredVoter,
    HostPort,
    parse_bootstrap_servers,
    parse_host_port,
    parse_voters,
)
from broker.config.setting import (
    boolean,
    integer,
    items,
    node_identifier,
    number,
    optional_integer,
    optional_text,
    text,
)
from broker.config.values import Value

_NOTHING: Mapping[str, str] = MappingProxyType({})


class BrokerConfig:
    """Immutable. ``with_dynamic`` makes another configuration for a dynamic change.

    ``cluster_id`` is the CLUSTER_ID of the environment, with which a node formats its directories. ``lone`` says that
    no setting places the node in a cluster: the node is a cluster of its own and may format its directories as well.
    """

    # Identity and lifecycle
    node_id = node_identifier()
    broker_rack = optional_text()
    initial_broker_registration_timeout_ms = integer()
    broker_heartbeat_interval_ms = integer()
    broker_session_timeout_ms = integer()
    controlled_shutdown_enable = boolean()

    # Connections and requests
    queued_max_requests = integer()
    queued_max_request_bytes = integer()
    request_timeout_ms = integer()
    socket_listen_backlog_size = integer()
    socket_request_max_bytes = integer()
    connections_max_idle_ms = integer()
    max_connections = integer()
    max_connections_per_ip = integer()
    max_connection_creation_rate = integer()
    max_incremental_fetch_session_cache_slots = integer()
    max_request_partition_size_limit = integer()
    fetch_max_bytes = integer()

    # Topics
    auto_create_topics_enable = boolean()
    delete_topic_enable = boolean()
    num_partitions = integer()
    default_replication_factor = integer()
    unclean_leader_election_interval_ms = integer()
    auto_leader_rebalance_enable = boolean()
    leader_imbalance_check_interval_seconds = integer()

    # Quotas
    quota_window_num = integer()
    quota_window_size_seconds = integer()
    replication_quota_window_num = integer()
    replication_quota_window_size_seconds = integer()
    controller_quota_window_num = integer()
    controller_quota_window_size_seconds = integer()

    # The metadata quorum and its log
    controller_quorum_election_timeout_ms = integer()
    controller_quorum_election_backoff_max_ms = integer()
    controller_quorum_fetch_timeout_ms = integer()
    controller_quorum_request_timeout_ms = integer()
    controller_quorum_retry_backoff_ms = integer()
    controller_quorum_append_linger_ms = integer()
    controller_quorum_auto_join_enable = boolean()
    controller_quorum_fetch_max_bytes = integer()
    controller_quorum_fetch_snapshot_max_bytes = integer()
    ottla_controller_quorum_max_observers = integer()
    controller_socket_timeout_ms = integer()
    metadata_log_segment_bytes = integer()
    metadata_log_segment_ms = integer()
    metadata_log_max_record_bytes_between_snapshots = integer()
    metadata_log_max_snapshot_interval_ms = integer()
    metadata_max_idle_interval_ms = integer()
    metadata_max_retention_bytes = integer()
    metadata_max_retention_ms = integer()
    metadata_start_offset_lag_time_max_ms = integer()
    internal_metadata_log_segment_bytes = optional_integer()
    internal_metadata_max_batch_size_in_bytes = integer()

    # Logs
    log_dir_failure_timeout_ms = integer()
    log_segment_delete_delay_ms = integer()
    log_roll_ms = optional_integer()
    log_roll_jitter_ms = optional_integer()
    log_retention_check_interval_ms = integer()
    log_flush_offset_checkpoint_interval_ms = integer()
    log_flush_start_offset_checkpoint_interval_ms = integer()
    log_initial_task_delay_ms = integer()
    num_recovery_threads_per_data_dir = integer()
    producer_id_expiration_ms = integer()
    producer_id_expiration_check_interval_ms = integer()

    # Compaction
    log_cleaner_enable = boolean()
    log_cleaner_threads = integer()
    log_cleaner_backoff_ms = integer()
    log_cleaner_dedupe_buffer_size = integer()
    log_cleaner_io_buffer_load_factor = number()
    log_cleaner_io_max_bytes_per_second = number()

    # Replication
    num_replica_fetchers = integer()
    replica_fetch_min_bytes = integer()
    replica_fetch_wait_max_ms = integer()
    replica_fetch_max_bytes = integer()
    replica_fetch_response_max_bytes = integer()
    replica_fetch_backoff_ms = integer()
    replica_lag_time_max_ms = integer()
    replica_high_watermark_checkpoint_interval_ms = integer()
    replica_socket_timeout_ms = integer()
    replica_selector_class = optional_text()

    # Groups and offsets
    offset_metadata_max_bytes = integer()
    offsets_commit_timeout_ms = integer()
    offsets_load_buffer_size = integer()
    offsets_retention_check_interval_ms = integer()
    offsets_retention_minutes = integer()
    offsets_topic_compression_codec = integer()
    offsets_topic_num_partitions = integer()
    offsets_topic_replication_factor = integer()
    offsets_topic_segment_bytes = integer()
    group_min_session_timeout_ms = integer()
    group_max_session_timeout_ms = integer()
    group_initial_rebalance_delay_ms = integer()
    group_max_size = integer()
    group_coordinator_append_linger_ms = integer()
    group_coordinator_rebalance_protocols = items()
    group_consumer_assignors = items()
    group_consumer_heartbeat_interval_ms = integer()
    group_consumer_min_heartbeat_interval_ms = integer()
    group_consumer_max_heartbeat_interval_ms = integer()
    group_consumer_session_timeout_ms = integer()
    group_consumer_min_session_timeout_ms = integer()
    group_consumer_max_session_timeout_ms = integer()
    group_consumer_max_size = integer()
    group_consumer_migration_policy = text()
    group_consumer_regex_refresh_interval_ms = integer()
    group_streams_heartbeat_interval_ms = integer()
    group_streams_min_heartbeat_interval_ms = integer()
    group_streams_max_heartbeat_interval_ms = integer()
    group_streams_session_timeout_ms = integer()
    group_streams_min_session_timeout_ms = integer()
    group_streams_max_session_timeout_ms = integer()
    group_streams_max_size = integer()
    group_streams_initial_rebalance_delay_ms = integer()
    group_share_enable = boolean()
    group_share_assignors = items()
    group_share_heartbeat_interval_ms = integer()
    group_share_min_heartbeat_interval_ms = integer()
    group_share_max_heartbeat_interval_ms = integer()
    group_share_session_timeout_ms = integer()
    group_share_min_session_timeout_ms = integer()
    group_share_max_session_timeout_ms = integer()
    group_share_max_size = integer()
    group_share_initialize_retry_interval_ms = integer()
    group_streams_num_standby_replicas = integer()
    group_streams_max_standby_replicas = integer()

    # Transactions
    transaction_max_timeout_ms = integer()
    transaction_two_phase_commit_enable = boolean()
    unstable_api_versions_enable = boolean()
    transaction_partition_verification_enable = boolean()
    add_partitions_to_txn_retry_backoff_ms = integer()
    add_partitions_to_txn_retry_backoff_max_ms = integer()
    transaction_abort_timed_out_transaction_cleanup_interval_ms = integer()
    transaction_remove_expired_transaction_cleanup_interval_ms = integer()
    transactional_id_expiration_ms = integer()
    transaction_state_log_load_buffer_size = integer()
    transaction_state_log_min_isr = integer()
    transaction_state_log_num_partitions = integer()
    transaction_state_log_replication_factor = integer()
    transaction_state_log_segment_bytes = integer()

    # Share state
    group_share_delivery_count_limit = integer()
    group_share_max_share_sessions = integer()
    group_share_partition_max_record_locks = integer()
    group_share_record_lock_duration_ms = integer()
    group_share_min_record_lock_duration_ms = integer()
    group_share_max_record_lock_duration_ms = integer()
    share_coordinator_append_linger_ms = integer()
    share_coordinator_cold_partition_snapshot_interval_ms = integer()
    share_coordinator_load_buffer_size = integer()
    share_coordinator_snapshot_update_records_per_snapshot = integer()
    share_coordinator_state_topic_compression_codec = integer()
    share_coordinator_state_topic_min_isr = integer()
    share_coordinator_state_topic_num_partitions = integer()
    share_coordinator_state_topic_prune_interval_ms = integer()
    share_coordinator_state_topic_replication_factor = integer()
    share_coordinator_state_topic_segment_bytes = integer()
    share_coordinator_write_timeout_ms = integer()

    # Remote storage
    remote_log_storage_system_enable = boolean()
    remote_log_storage_manager_class_name = optional_text()
    remote_log_storage_manager_class_path = optional_text()
    remote_log_storage_manager_impl_prefix = text()
    remote_log_metadata_manager_class_name = text()
    remote_log_metadata_manager_class_path = optional_text()
    remote_log_metadata_manager_impl_prefix = text()
    remote_log_metadata_manager_listener_name = optional_text()
    remote_log_metadata_custom_metadata_max_bytes = integer()
    remote_log_index_file_cache_total_size_bytes = integer()
    remote_log_manager_copier_thread_pool_size = integer()
    remote_log_manager_expiration_thread_pool_size = integer()
    remote_log_manager_follower_thread_pool_size = integer()
    remote_log_manager_task_interval_ms = integer()
    remote_log_manager_task_retry_backoff_ms = integer()
    remote_log_manager_task_retry_backoff_max_ms = integer()
    remote_log_manager_task_retry_jitter = number()
    remote_log_manager_copy_max_bytes_per_second = integer()
    remote_log_manager_copy_quota_window_num = integer()
    remote_log_manager_copy_quota_window_size_seconds = integer()
    remote_log_manager_fetch_max_bytes_per_second = integer()
    remote_log_manager_fetch_quota_window_num = integer()
    remote_log_manager_fetch_quota_window_size_seconds = integer()
    remote_log_reader_threads = integer()
    remote_log_reader_max_pending_tasks = integer()
    remote_fetch_max_wait_ms = integer()
    remote_list_offsets_request_timeout_ms = integer()
    follower_fetch_last_tiered_offset_enable = boolean()
    ottla_log_remote_storage_enable = boolean()
    ottla_remote_storage_compacted_enable = boolean()
    ottla_remote_log_unknown_topic_retention_ms = integer()
    ottla_remote_log_collection_grace_ms = integer()
    ottla_remote_log_hole_patience_ms = integer()
    ottla_remote_log_metadata_topic_deletion_enable = boolean()
    ottla_remote_partition_remover_task_interval_ms = integer()
    ottla_remote_fetch_result_retention_ms = integer()
    ottla_remote_fetch_result_max_bytes = integer()

    # Security
    authorizer_class_name = text()
    connection_failed_authentication_delay_ms = integer()
    connections_max_reauth_ms = integer()
    sasl_enabled_mechanisms = items()
    sasl_server_max_receive_size = integer()
    delegation_token_secret_key = optional_text()
    sasl_mechanism_inter_broker_protocol = text()
    sasl_mechanism_controller_protocol = text()
    delegation_token_max_lifetime_ms = integer()
    delegation_token_expiry_time_ms = integer()
    delegation_token_expiry_check_interval_ms = integer()

    # Ottla's own
    ottla_brokers_port_step = integer()
    ottla_scheduling_policy = text()
    ottla_cluster_metadata_readable = boolean()
    ottla_controller_broker_watch_enable = boolean()
    ottla_client_metrics_max_series = integer()
    ottla_coordinator_snapshot_enable = boolean()
    ottla_coordinator_snapshot_interval_ms = integer()
    ottla_coordinator_snapshot_min_new_records = integer()
    telemetry_max_bytes = integer()
    ottla_ssl_handshake_timeout_ms = integer()
    ottla_authentication_timeout_ms = integer()
    ottla_audit_log = text()
    ottla_audit_allowed_sample_rate = number()
    ottla_audit_log_max_bytes = integer()
    ottla_audit_log_kept_files = integer()
    ottla_audit_queued_max_lines = integer()
    ottla_otel_endpoint = text()
    ottla_otel_interval_ms = integer()
    ottla_otel_timeout_ms = integer()
    ottla_otel_max_series = integer()
    ottla_otel_resource_attributes = items()
    ottla_otel_headers_location = text()
    ottla_otel_traces_enable = boolean()
    ottla_otel_traces_interval_ms = integer()
    ottla_otel_traces_max_spans = integer()
    ottla_ssl_reload_interval_ms = integer()
    ottla_metadata_snapshot_import_uri = optional_text()
    ottla_metadata_snapshot_import_timeout_ms = integer()
    ottla_metadata_snapshot_import_max_bytes = integer()
    ottla_metadata_snapshot_compression_type = text()

    __slots__ = (
        "_overrides_per_ip",
        "_plan",
        "_values",
        "bootstrap_servers",
        "cluster_id",
        "http_listener",
        "layers",
        "lone",
        "voters",
    )

    def __init__(
        self,
        static: Mapping[str, str],
        *,
        cluster: Mapping[str, str] = _NOTHING,
        broker: Mapping[str, str] = _NOTHING,
        cluster_id: str | None = None,
        lone: bool = False,
    ) -> None:
        """Parse the layers. Raise ConfigError for a value that cannot be used."""
        self.layers = Layers(dict(broker), dict(cluster), dict(static))
        self.cluster_id = cluster_id
        self.lone = lone
        self._values = {name: self._parse(key) for name, key in BROKER_KEYS.items()}
        _parse_prefixed(self.layers)
        self._plan = plan_listeners(self._listener_settings())
        self.voters: tuple[ConfiguredVoter, ...] = parse_voters(self._items("controller.quorum.voters"))
        self.bootstrap_servers = parse_bootstrap_servers(self._items("controller.quorum.bootstrap.servers"))
        self.http_listener: HostPort | None = self._http_listener()
        self._overrides_per_ip = _parse_overrides_per_ip(str(self.value("max.connections.per.ip.overrides")))

    def with_dynamic(
        self, *, cluster: Mapping[str, str], broker: Mapping[str, str]
    ) -> tuple["BrokerConfig", list[ConfigError]]:
        """Return this configuration under the metadata log's dynamic layers, and the errors of unusable values.

        A stored value that no longer parses (another version wrote it) is left out, since one bad record must not
        keep a broker from starting.
        """
        problems: list[ConfigError] = []
        changed = BrokerConfig(
            self.layers.static,
            cluster=_usable(cluster, problems),
            broker=_usable(broker, problems),
            cluster_id=self.cluster_id,
            lone=self.lone,
        )
        return changed, problems

    def value(self, name: str) -> Value:
        """Return the parsed value of a defined key. Raise KeyError for any other name."""
        return self._values[name]

    def raw(self, name: str) -> str | None:
        """Return the text of a setting, as given or by default; None when unset or unknown."""
        found = self.layers.find(name)
        if found is not None:
            return found
        key = BROKER_KEYS.get(name)
        return None if key is None else key.default

    def settings_below(self, prefix: str) -> dict[str, str]:
        """Return the static settings below ``prefix``, without the prefix: the configuration of a plug-in."""
        static = self.layers.static
        return {name.removeprefix(prefix): static[name] for name in static if name.startswith(prefix)}

    @property
    def is_broker(self) -> bool:
        return "broker" in self._items("process.roles")

    @property
    def is_controller(self) -> bool:
        return "controller" in self._items("process.roles")

    @property
    def client_listeners(self) -> tuple[ConfiguredListener, ...]:
        """Listeners to bind for clients and brokers."""
        return self._plan.clients

    @property
    def controller_listeners(self) -> tuple[ConfiguredListener, ...]:
        """Listeners to bind for the quorum."""
        return self._plan.controllers

    @property
    def advertised_listeners(self) -> tuple[ConfiguredListener, ...]:
        """Listeners that a broker registers; the binder fills in port 0 and an empty host."""
        return self._plan.advertised

    @property
    def advertised_controller_listeners(self) -> tuple[ConfiguredListener, ...]:
        """Listeners at which the quorum reaches this controller, in the order of `controller.listener.names`."""
        return self._plan.advertised_controllers

    @property
    def controller_listener_names(self) -> tuple[str, ...]:
        return self._plan.controller_names

    @property
    def listener_protocols(self) -> Mapping[str, str]:
        """The security protocol of each listener of the cluster, also of those that this node does not bind."""
        return self._plan.protocols

    @property
    def inter_broker_listener_name(self) -> str:
        return self._plan.inter_broker_name

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """Log directories, each once and as an absolute path: the node and DescribeLogDirs identify them by path."""
        given = self._items("log.dirs") or self._items("log.dir")
        return tuple(dict.fromkeys(abspath(path) for path in given))

    @property
    def metadata_log_dir(self) -> str:
        given = self.value("metadata.log.dir")
        return self.log_dirs[0] if given is None else abspath(str(given))

    @property
    def metadata_snapshot_min_changed_records_ratio(self) -> float:
        """``metadata.snapshot.min.changed_records.ratio`` of KIP-630, whose name has an underscore of its own."""
        return cast(float, self.value("metadata.snapshot.min.changed_records.ratio"))

    @property
    def max_connections_per_ip_overrides(self) -> Mapping[str, int]:
        return self._overrides_per_ip

    def _parse(self, key: ConfigKey) -> Value:
        given = self.layers.find(key.name)
        if given is not None:
            return key.parse(given)
        if key.required:
            raise ConfigError(key.name, f"{key.name} must be set.")
        return key.default_value()

    def _items(self, name: str) -> tuple[str, ...]:
        return cast(tuple[str, ...], self._values[name] or ())

    def _listener_settings(self) -> ListenerSettings:
        given = self.layers.find
        return ListenerSettings(
            is_broker=self.is_broker,
            is_controller=self.is_controller,
            listeners=self._items("listeners"),
            advertised=self._items("advertised.listeners") or None,
            protocol_map=str(self.value("listener.security.protocol.map")),
            protocol_map_is_set=given("listener.security.protocol.map") is not None,
            controller_names=self._items("controller.listener.names"),
            inter_broker_name=given("inter.broker.listener.name"),
            inter_broker_protocol=str(self.value("security.inter.broker.protocol")),
            inter_broker_protocol_is_set=given("security.inter.broker.protocol") is not None,
        )

    def _http_listener(self) -> HostPort | None:
        address = str(self.value("ottla.http.listener"))
        return parse_host_port("ottla.http.listener", address) if address else None


def _parse_prefixed(layers: Layers) -> None:
    """Check each setting of one listener by the rule of its key, even where no code reads the setting."""
    for layer in (layers.broker, layers.cluster, layers.static):
        for name, given in layer.items():
            key = broker_key(name)
            if key is not None and key.name != name:
                key.parse(given, name=name)


def _usable(settings: Mapping[str, str], problems: list[ConfigError]) -> dict[str, str]:
    usable: dict[str, str] = {}
    for name, given in settings.items():
        key = broker_key(name)
        try:
            if key is not None:
                key.parse(given, name=name)
            usable[name] = given
        except ConfigError as error:
            problems.append(error)
    return usable


def _parse_overrides_per_ip(given: str) -> dict[str, int]:
    """Parse comma-separated ``host:count`` pairs."""
    overrides: dict[str, int] = {}
    for entry in filter(None, (entry.strip() for entry in given.split(","))):
        host, _, count = entry.rpartition(":")
        if not host or not count.strip().isdecimal():
            name = "max.connections.per.ip.overrides"
            raise ConfigError(name, f"{name} has {entry!r} but every entry must be of the form host:count.")
        overrides[host.strip()] = int(count)
    return overrides
