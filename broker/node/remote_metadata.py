"""The metadata of remote segments: on the topic `__remote_log_metadata`, or in a plug-in."""

from broker.config.errors import ConfigError
from broker.logs import EventLog
from broker.node.data import DataPart
from broker.node.metadata import MetadataPart
from broker.node.runtime import NodeRuntime
from broker.runtime.remote_metadata.client import NetworkMetadataClient
from broker.runtime.remote_metadata.led_partitions import HostedMetadataLogs
from broker.runtime.remote_metadata.plugin_manager import PluginRemoteMetadata
from broker.runtime.remote_metadata.settings import RemoteMetadataSettings, parse_remote_metadata_settings
from broker.runtime.remote_metadata.snapshots import MetadataSnapshots
from broker.runtime.remote_metadata.topic import TopicRemoteMetadata
from broker.runtime.remote_metadata.topic_creation import MetadataTopicCreation
from storage.files import join
from storage.tiered.catalog import metadata_snapshot
from storage.tiered.loading.remote_metadata import is_on_topic, load_remote_metadata
from storage.tiered.remote_metadata import RemoteLogMetadataManager, RemoteMetadataContext

_log = EventLog("broker.tiered")


def build_remote_metadata(
    runtime: NodeRuntime, cluster_id: str, metadata: MetadataPart, data: DataPart
) -> RemoteLogMetadataManager:
    """Build the remote log metadata manager. Raise ConfigError."""
    if is_on_topic(metadata.config.current.remote_log_metadata_manager_class_name):
        return _build_topic_metadata(runtime, metadata, data)
    return _load_metadata(cluster_id, metadata)


def _load_metadata(cluster_id: str, metadata: MetadataPart) -> PluginRemoteMetadata:
    """Load the operator's own class. Raise ConfigError."""
    config = metadata.config.current
    listener = config.remote_log_metadata_manager_listener_name or config.inter_broker_listener_name

    def bootstrap_server() -> str | None:
        broker = metadata.cache.image.brokers.get(config.node_id)
        found = None if broker is None else broker.endpoints.get(listener)
        return None if found is None else f"{found.host}:{found.port}"

    try:
        return PluginRemoteMetadata(
            load_remote_metadata(
                config.remote_log_metadata_manager_class_name,
                config.settings_below(config.remote_log_metadata_manager_impl_prefix),
                RemoteMetadataContext(
                    broker_id=config.node_id,
                    cluster_id=cluster_id,
                    log_directory=config.log_dirs[0],
                    bootstrap_server=bootstrap_server,
                ),
                config.remote_log_metadata_manager_class_path,
            )
        )
    except ValueError as error:
        raise ConfigError("remote.log.metadata.manager.class.name", str(error)) from error


def _build_topic_metadata(runtime: NodeRuntime, metadata: MetadataPart, data: DataPart) -> TopicRemoteMetadata:
    config = metadata.config.current
    prefix = config.remote_log_metadata_manager_impl_prefix
    try:
        settings = parse_remote_metadata_settings(config.settings_below(prefix), prefix)
    except ValueError as error:
        raise ConfigError("remote.log.metadata.manager.impl.prefix", str(error)) from error
    listener = config.remote_log_metadata_manager_listener_name or config.inter_broker_listener_name
    _check_protocol(settings, config.listener_protocols[listener], prefix, listener)
    for warning in settings.warnings:
        _log.warning(warning)
    if settings.topic_retention_ms >= 0:
        _log.warning(
            "The retention time of the metadata topic has no effect: brokers keep the metadata of all live segments",
            key="remote.log.metadata.topic.retention.ms",
            value=settings.topic_retention_ms,
        )
    client = NetworkMetadataClient(
        config.node_id,
        metadata.cache,
        settings,
        runtime.clock,
        runtime.loop,
        runtime.connect_for_remote_metadata(listener),
        listener=listener,
    )
    creation = MetadataTopicCreation(
        metadata.forwarding_channel,
        metadata.cache,
        settings,
        runtime.loop,
        runtime.deadlines,
        voter_count=lambda: len(metadata.quorum.driver.facts.voter_ids),
        spawn=runtime.spawn,
    )
    return TopicRemoteMetadata(
        client,
        creation,
        MetadataSnapshots(runtime.files, join(config.log_dirs[0], metadata_snapshot.DIRECTORY), runtime.io),
        HostedMetadataLogs(data.partitions, runtime.clock),
        runtime.loop,
        runtime.deadlines,
        settings,
    )


def _check_protocol(settings: RemoteMetadataSettings, protocol: str, prefix: str, listener: str) -> None:
    """Check that the clients' protocol, where given, is that of the listener. Raise ConfigError."""
    given = settings.security_protocol
    if given is not None and given.strip().upper() != protocol:
        key = f"{prefix}remote.log.metadata.common.client.security.protocol"
        raise ConfigError(key, f"{key} is {given} but listener {listener} has the protocol {protocol}.")
