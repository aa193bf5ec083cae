"""Every command in the `bin/` folder of Apache Kafka 4.2, its main class, and the command of ottla that replaces it."""

from typing import NamedTuple


class KafkaCommand(NamedTuple):
    """A script of Kafka. `main` is its class; `ours` the command of ottla, None if there is none."""

    main: str
    ours: str | None


_TOOLS = "org.apache.kafka.tools"

COMMANDS: dict[str, KafkaCommand] = {
    "connect-distributed": KafkaCommand("org.apache.kafka.connect.cli.ConnectDistributed", None),
    "connect-mirror-maker": KafkaCommand("org.apache.kafka.connect.mirror.MirrorMaker", None),
    "connect-plugin-path": KafkaCommand(f"{_TOOLS}.ConnectPluginPath", None),
    "connect-standalone": KafkaCommand("org.apache.kafka.connect.cli.ConnectStandalone", None),
    "kafka-acls": KafkaCommand(f"{_TOOLS}.AclCommand", "acls"),
    "kafka-broker-api-versions": KafkaCommand(f"{_TOOLS}.BrokerApiVersionsCommand", "broker-api-versions"),
    "kafka-client-metrics": KafkaCommand(f"{_TOOLS}.ClientMetricsCommand", "client-metrics"),
    "kafka-cluster": KafkaCommand(f"{_TOOLS}.ClusterTool", "cluster"),
    "kafka-configs": KafkaCommand("kafka.admin.ConfigCommand", "configs"),
    "kafka-console-consumer": KafkaCommand(f"{_TOOLS}.consumer.ConsoleConsumer", "console-consumer"),
    "kafka-console-producer": KafkaCommand(f"{_TOOLS}.ConsoleProducer", "console-producer"),
    "kafka-console-share-consumer": KafkaCommand(f"{_TOOLS}.consumer.ConsoleShareConsumer", "console-share-consumer"),
    "kafka-consumer-groups": KafkaCommand(f"{_TOOLS}.consumer.group.ConsumerGroupCommand", "consumer-groups"),
    "kafka-consumer-perf-test": KafkaCommand(f"{_TOOLS}.ConsumerPerformance", "consumer-perf"),
    "kafka-delegation-tokens": KafkaCommand(f"{_TOOLS}.DelegationTokenCommand", "delegation-tokens"),
    "kafka-delete-records": KafkaCommand(f"{_TOOLS}.DeleteRecordsCommand", "delete-records"),
    "kafka-dump-log": KafkaCommand("kafka.tools.DumpLogSegments", "dump-log"),
    "kafka-e2e-latency": KafkaCommand(f"{_TOOLS}.EndToEndLatency", "e2e-latency"),
    "kafka-features": KafkaCommand(f"{_TOOLS}.FeatureCommand", "features"),
    "kafka-get-offsets": KafkaCommand(f"{_TOOLS}.GetOffsetShell", "get-offsets"),
    "kafka-groups": KafkaCommand(f"{_TOOLS}.GroupsCommand", "groups"),
    "kafka-jmx": KafkaCommand(f"{_TOOLS}.JmxTool", None),
    "kafka-leader-election": KafkaCommand(f"{_TOOLS}.LeaderElectionCommand", "leader-election"),
    "kafka-log-dirs": KafkaCommand(f"{_TOOLS}.LogDirsCommand", "log-dirs"),
    "kafka-metadata-quorum": KafkaCommand(f"{_TOOLS}.MetadataQuorumCommand", "metadata-quorum"),
    "kafka-metadata-shell": KafkaCommand("org.apache.kafka.shell.MetadataShell", "metadata-shell"),
    "kafka-producer-perf-test": KafkaCommand(f"{_TOOLS}.ProducerPerformance", "producer-perf"),
    "kafka-reassign-partitions": KafkaCommand(f"{_TOOLS}.reassign.ReassignPartitionsCommand", "reassign-partitions"),
    "kafka-replica-verification": KafkaCommand(f"{_TOOLS}.ReplicaVerificationTool", "replica-verification"),
    "kafka-run-class": KafkaCommand("", None),
    "kafka-server-start": KafkaCommand("kafka.Kafka", "start"),
    "kafka-server-stop": KafkaCommand("", None),
    "kafka-share-consumer-perf-test": KafkaCommand(f"{_TOOLS}.ShareConsumerPerformance", "share-consumer-perf"),
    "kafka-share-groups": KafkaCommand(f"{_TOOLS}.consumer.group.ShareGroupCommand", "share-groups"),
    "kafka-storage": KafkaCommand("kafka.tools.StorageTool", "storage"),
    "kafka-streams-application-reset": KafkaCommand(f"{_TOOLS}.StreamsResetter", "streams-application-reset"),
    "kafka-streams-groups": KafkaCommand(f"{_TOOLS}.streams.StreamsGroupCommand", "streams-groups"),
    "kafka-topics": KafkaCommand(f"{_TOOLS}.TopicCommand", "topics"),
    "kafka-transactions": KafkaCommand(f"{_TOOLS}.TransactionsCommand", "transactions"),
    "kafka-verifiable-consumer": KafkaCommand(f"{_TOOLS}.VerifiableConsumer", "verifiable-consumer"),
    "kafka-verifiable-producer": KafkaCommand(f"{_TOOLS}.VerifiableProducer", "verifiable-producer"),
    "kafka-verifiable-share-consumer": KafkaCommand(f"{_TOOLS}.VerifiableShareConsumer", "verifiable-share-consumer"),
    "trogdor": KafkaCommand("org.apache.kafka.trogdor.coordinator.Coordinator", None),
}

OWN_COMMANDS = frozenset({"completion", "doctor", "kafka-cluster", "perf-consumer", "perf-producer", "remote", "top"})
"""Commands of ottla without a counterpart of Kafka, and second names of commands."""
