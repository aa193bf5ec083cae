"""A Spark data source for `__cluster_metadata`: its rows, read from the brokers by the Kafka protocol."""
