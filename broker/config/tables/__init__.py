"""Kafka's configuration keys as tables, one module per group of keys."""
