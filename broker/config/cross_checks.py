"""Rules between the settings of a broker (Kafka's ``KafkaConfig.validateValues`` and its helpers).

``listeners`` owns the rules between the listener keys.
"""

from collections.abc import Callable

from broker.config.broker_config import BrokerConfig
from broker.config.errors import ConfigError
from broker.config.topic_config import log_config

_AS_THE_WHOLE = -2
_MIB = 1024 * 1024
_HIGHEST_CODEC = 4
_REPLICA_SELECTORS = (
    "org.apache.kafka.common.replica.LeaderSelector",
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
)
_QUORUM_TIMES = (
    "controller.quorum.election.timeout.ms",
    "controller.quorum.fetch.timeout.ms",
    "controller.quorum.request.timeout.ms",
)


def check_together(config: BrokerConfig) -> None:
    """Raise ConfigError for the first rule that the configuration breaks."""
    for check in _CHECKS:
        check(config)


def _check_quorum(config: BrokerConfig) -> None:
    voters = {voter.id for voter in config.voters}
    if not voters and not config.bootstrap_servers:
        raise ConfigError(
            "controller.quorum.voters",
            "controller.quorum.voters or controller.quorum.bootstrap.servers must be set to the quorum's controllers.",
        )
    for name in _QUORUM_TIMES:  # Kafka accepts 0 and then fails at the first election, or retries without a pause
        if config.value(name) == 0:
            raise ConfigError(name, f"{name} is 0 but must be at least 1.")
    if not voters:
        return
    if config.is_controller and config.node_id not in voters:
        raise ConfigError(
            "controller.quorum.voters",
            f"controller.quorum.voters must contain this controller, node.id {config.node_id}.",
        )
    if not config.is_controller and config.node_id in voters:
        raise ConfigError(
            "controller.quorum.voters",
            f"controller.quorum.voters contains node.id {config.node_id}, but its process.roles lacks controller.",
        )


def _check_old_id(config: BrokerConfig) -> None:
    old = config.value("broker.id")
    if old not in (-1, config.node_id):
        raise ConfigError("broker.id", f"broker.id is {old} but must be the same as node.id, {config.node_id}.")


def _check_log_times(config: BrokerConfig) -> None:
    if config.log_roll_ms is not None and config.log_roll_ms < 1:
        raise ConfigError("log.roll.ms", f"log.roll.ms is {config.log_roll_ms} but must be at least 1.")
    if config.log_roll_jitter_ms is not None and config.log_roll_jitter_ms < 0:
        raise ConfigError(
            "log.roll.jitter.ms", f"log.roll.jitter.ms is {config.log_roll_jitter_ms} but must be at least 0."
        )
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        if config.value(name) is not None:
            _check_retention(name, config.value(name))
            return


def _check_retention(name: str, value: object) -> None:
    if value == 0:
        raise ConfigError(name, f"{name} is 0 but must be at least 1, or -1 to keep everything.")


def _check_early_start(config: BrokerConfig) -> None:
    early = config.value("early.start.listeners")
    bound = {listener.name for listener in config.client_listeners} | set(config.controller_listener_names)
    for name in early if isinstance(early, tuple) else ():
        if name.upper() not in bound:
            known = ", ".join(sorted(bound))
            raise ConfigError(
                "early.start.listeners", f"early.start.listeners has {name} but the listeners of this node are {known}."
            )


def _check_connection_limits(config: BrokerConfig) -> None:
    if config.max_connections_per_ip == 0 and not config.max_connections_per_ip_overrides:
        raise ConfigError(
            "max.connections.per.ip",
            "max.connections.per.ip may be 0 only when max.connections.per.ip.overrides admits at least one address.",
        )


def _check_request_bytes(config: BrokerConfig) -> None:
    if 0 < config.queued_max_request_bytes < config.socket_request_max_bytes:
        raise ConfigError(
            "queued.max.request.bytes",
            f"queued.max.request.bytes is {config.queued_max_request_bytes} but must be at least "
            f"socket.request.max.bytes, {config.socket_request_max_bytes}.",
        )


def _check_replica_times(config: BrokerConfig) -> None:
    wait_ms = config.replica_fetch_wait_max_ms
    if wait_ms > config.replica_socket_timeout_ms:
        raise ConfigError(
            "replica.socket.timeout.ms",
            f"replica.socket.timeout.ms is {config.replica_socket_timeout_ms} but must be at least "
            f"replica.fetch.wait.max.ms, {wait_ms}: otherwise fetches that wait for records time out.",
        )
    if wait_ms > config.replica_lag_time_max_ms:
        raise ConfigError(
            "replica.fetch.wait.max.ms",
            f"replica.fetch.wait.max.ms is {wait_ms} but must be at most replica.lag.time.max.ms, "
            f"{config.replica_lag_time_max_ms}: otherwise idle followers leave the in-sync replicas.",
        )


def _check_replica_selector(config: BrokerConfig) -> None:
    name = config.replica_selector_class
    if name and name not in _REPLICA_SELECTORS:
        known = " or ".join(_REPLICA_SELECTORS)
        raise ConfigError("replica.selector.class", f"replica.selector.class is {name} but must be {known}.")


def _check_cleaner(config: BrokerConfig) -> None:
    per_thread = config.log_cleaner_dedupe_buffer_size // max(1, config.log_cleaner_threads)
    if config.log_cleaner_enable and per_thread <= _MIB:
        raise ConfigError(
            "log.cleaner.dedupe.buffer.size",
            f"log.cleaner.dedupe.buffer.size is {config.log_cleaner_dedupe_buffer_size} but must be more than "
            f"1 MiB for each of log.cleaner.threads, {config.log_cleaner_threads}.",
        )
    if config.log_cleaner_enable and config.log_cleaner_threads < 1:
        raise ConfigError(
            "log.cleaner.threads", "log.cleaner.threads is 0 but must be at least 1 where log.cleaner.enable is true."
        )


def _check_groups(config: BrokerConfig) -> None:
    if "classic" not in config.group_coordinator_rebalance_protocols:
        raise ConfigError(
            "group.coordinator.rebalance.protocols", "group.coordinator.rebalance.protocols must contain classic."
        )
    for name in ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec"):
        codec = config.value(name)
        if not isinstance(codec, int) or not 0 <= codec <= _HIGHEST_CODEC:
            raise ConfigError(name, f"{name} is {codec} but must be from 0 to {_HIGHEST_CODEC}.")


def _check_group_bounds(config: BrokerConfig) -> None:
    for group_type in ("consumer", "share", "streams"):
        for setting in ("heartbeat.interval.ms", "session.timeout.ms"):
            check_bounds(config, f"group.{group_type}.{setting}", f"group.{group_type}", setting)
        _check_below(config, f"group.{group_type}.heartbeat.interval.ms", f"group.{group_type}.session.timeout.ms")
    check_bounds(config, "group.share.record.lock.duration.ms", "group.share", "record.lock.duration.ms")
    standby = config.group_streams_num_standby_replicas
    if standby > config.group_streams_max_standby_replicas:
        raise ConfigError(
            "group.streams.num.standby.replicas",
            f"group.streams.num.standby.replicas is {standby} but must be at most "
            f"group.streams.max.standby.replicas, {config.group_streams_max_standby_replicas}.",
        )


def check_bounds(config: BrokerConfig, name: str, prefix: str, setting: str) -> None:
    """Check min <= value <= max for a setting with bounds (``group.consumer`` + ``session.timeout.ms``)."""
    low_name, high_name = f"{prefix}.min.{setting}", f"{prefix}.max.{setting}"
    low, value, high = config.value(low_name), config.value(name), config.value(high_name)
    assert isinstance(low, int)
    assert isinstance(value, int)
    assert isinstance(high, int)
    if high < low:
        raise ConfigError(high_name, f"{high_name} is {high} but must be at least {low_name}, {low}.")
    if value < low:
        raise ConfigError(name, f"{name} is {value} but must be at least {low_name}, {low}.")
    if value > high:
        raise ConfigError(name, f"{name} is {value} but must be at most {high_name}, {high}.")


def _check_below(config: BrokerConfig, name: str, limit_name: str) -> None:
    value, limit = config.value(name), config.value(limit_name)
    assert isinstance(value, int)
    assert isinstance(limit, int)
    if value >= limit:
        raise ConfigError(name, f"{name} is {value} but must be below {limit_name}, {limit}.")


def _check_remote_storage(config: BrokerConfig) -> None:
    is_on = config.remote_log_storage_system_enable
    if config.ottla_log_remote_storage_enable and not is_on:
        raise ConfigError(
            "ottla.log.remote.storage.enable",
            "ottla.log.remote.storage.enable is true but needs remote.log.storage.system.enable=true.",
        )
    if is_on and config.is_broker and config.remote_log_storage_manager_class_name is None:
        raise ConfigError(
            "remote.log.storage.manager.class.name",
            "remote.log.storage.manager.class.name must be s3, local or an import path, "
            "since remote.log.storage.system.enable is true.",
        )
    if is_on:
        check_local_retention(config)
    listener = config.remote_log_metadata_manager_listener_name
    names = {each.name for each in config.client_listeners}
    if is_on and config.is_broker and listener is not None and listener not in names:
        raise ConfigError(
            "remote.log.metadata.manager.listener.name",
            f"remote.log.metadata.manager.listener.name is {listener} but must be one of the broker's listeners.",
        )


def check_local_retention(config: BrokerConfig) -> None:
    """Check the defaults of topics: the local log must not be retained longer than the whole log."""
    defaults = log_config({}, config)
    for unit, local, total in (
        ("ms", defaults.local_retention_ms, defaults.retention_ms),
        ("bytes", defaults.local_retention_bytes, defaults.retention_bytes),
    ):
        if total >= 0 and local != _AS_THE_WHOLE and not 0 <= local <= total:
            name = f"log.local.retention.{unit}"
            raise ConfigError(name, f"{name} is {local} but must be at most log.retention.{unit}, {total}.")


def _check_snapshot_import(config: BrokerConfig) -> None:
    uri = config.ottla_metadata_snapshot_import_uri
    if not uri:
        return
    # Local import: only this setting needs it.
    from storage.tiered.loading.store_uri import StoreUriError, parse_store_uri

    try:
        parse_store_uri(uri)
    except StoreUriError as error:
        name = "ottla.metadata.snapshot.import.uri"
        raise ConfigError(name, f"{name}: {error}.") from None


_CHECKS: tuple[Callable[[BrokerConfig], None], ...] = (
    _check_old_id,
    _check_snapshot_import,
    _check_quorum,
    _check_early_start,
    _check_log_times,
    _check_connection_limits,
    _check_request_bytes,
    _check_replica_times,
    _check_replica_selector,
    _check_cleaner,
    _check_remote_storage,
    _check_groups,
    _check_group_bounds,
)
