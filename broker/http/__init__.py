"""A small HTTP server for health checks and metrics. Knows nothing of Kafka; its routes are plain functions."""
