"""Metrics of a node, under the names that Kafka's metrics get from the usual JMX exporter."""
