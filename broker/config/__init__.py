"""Kafka's configuration: keys, typed values, dynamic layers, and the DescribeConfigs view."""
