"""The Spark data source for `__cluster_metadata`, which reads rows from the brokers by the Kafka protocol."""
