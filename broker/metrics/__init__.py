"""A node in numbers, under the names that Kafka's metrics have behind the usual JMX exporter."""
