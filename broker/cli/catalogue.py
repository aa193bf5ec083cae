"""The table of all commands: module, attribute and summary. Read before any other import."""

from typing import NamedTuple


class Command(NamedTuple):
    """A command: the `module` below `broker.cli` and the `attribute` that holds the click command."""

    module: str
    attribute: str
    about: str


COMMANDS: dict[str, Command] = {
    "start": Command("start", "start", "Run a node."),
    "cluster": Command("cluster", "cluster", "Run a local cluster, or query a running one."),
    "top": Command("top", "top", "Show the cluster live in a terminal."),
    "doctor": Command("doctor", "doctor", "Find what is wrong with a cluster, and what to do."),
    "storage": Command("storage", "storage", "Format log directories, or show their properties."),
    "topics": Command("topics", "topics", "Create, delete, list, describe or extend topics."),
    "configs": Command("configs", "configs", "Describe or alter configurations."),
    "get-offsets": Command("admin.get_offsets", "get_offsets", "Print offsets of partitions by time."),
    "client-metrics": Command(
        "admin.client_metrics", "client_metrics", "Describe or alter subscriptions to metrics of clients."
    ),
    "groups": Command("admin.list_groups", "groups", "List the groups of all types."),
    "consumer-groups": Command(
        "consumer_groups", "consumer_groups", "Describe groups, reset and delete their offsets."
    ),
    "streams-groups": Command(
        "streams_groups", "streams_groups", "Describe Kafka Streams groups, reset and delete their offsets."
    ),
    "share-groups": Command("share_groups", "share_groups", "Describe share groups, reset and delete their offsets."),
    "metadata-quorum": Command(
        "metadata_quorum", "metadata_quorum", "Describe the metadata quorum, change its voters, create a snapshot."
    ),
    "features": Command("features", "features", "Show or change feature levels of the cluster."),
    "leader-election": Command("leader_election", "leader_election", "Elect leaders of partitions."),
    "reassign-partitions": Command("reassign_partitions", "reassign_partitions", "Move partitions between brokers."),
    "metadata-shell": Command(
        "metadata_shell", "metadata_shell", "Browse the metadata of a cluster as a tree of files."
    ),
    "acls": Command("acls", "acls", "List, add or remove access control lists."),
    "delegation-tokens": Command(
        "delegation_tokens", "delegation_tokens", "Create, renew, expire or describe delegation tokens."
    ),
    "log-dirs": Command("log_dirs", "log_dirs", "Show log directories and the sizes of their partitions."),
    "streams-application-reset": Command(
        "groups.streams_application_reset",
        "streams_application_reset",
        "Reset a Kafka Streams application to process its input again.",
    ),
    "transactions": Command("transactions", "transactions", "List, describe and abort transactions."),
    "delete-records": Command("delete_records", "delete_records", "Delete the oldest records of partitions."),
    "remote": Command("remote", "remote", "Describe, verify, clean up or recover remote storage."),
    "broker-api-versions": Command("broker_api_versions", "broker_api_versions", "Show which APIs each broker serves."),
    "dump-log": Command("dump_log", "dump_log", "Print the content of log, index and snapshot files."),
    "console-producer": Command("console_producer", "console_producer", "Send lines from standard input."),
    "console-consumer": Command("console_consumer", "console_consumer", "Print records to standard output."),
    "producer-perf": Command(
        "producer_perf", "producer_perf", "Measure the throughput and the latencies of a producer."
    ),
    "verifiable-producer": Command(
        "verifiable.producer", "verifiable_producer", "Send numbers and report each acknowledgement as JSON."
    ),
    "verifiable-consumer": Command(
        "verifiable.consumer", "verifiable_consumer", "Read a topic in a group and report each event as JSON."
    ),
    "e2e-latency": Command("perf.e2e_latency", "e2e_latency", "Measure the time from a producer to a consumer."),
    "replica-verification": Command(
        "admin.replica_verification", "replica_verification", "Compare the replicas of partitions batch by batch."
    ),
    "kafka-cluster": Command(
        "admin.cluster_queries", "kafka_cluster", "The queries of cluster, without the start of a local cluster."
    ),
    "perf-producer": Command("producer_perf", "producer_perf", "Second name of producer-perf."),
    "perf-consumer": Command("consumer_perf", "consumer_perf", "Second name of consumer-perf."),
    "consumer-perf": Command("consumer_perf", "consumer_perf", "Measure the throughput of a consumer."),
    "console-share-consumer": Command(
        "share.console", "console_share_consumer", "Print records of a share group to standard output."
    ),
    "verifiable-share-consumer": Command(
        "share.verifiable", "verifiable_share_consumer", "Read a topic in a share group and report events as JSON."
    ),
    "share-consumer-perf": Command(
        "share.perf", "share_consumer_perf", "Measure the throughput of a consumer of a share group."
    ),
    "completion": Command("completion.command", "completion", "Print the completion script of a shell."),
}
