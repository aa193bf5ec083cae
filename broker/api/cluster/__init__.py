"""APIs of brokers and of the cluster: versions, features, log directories, client telemetry."""
