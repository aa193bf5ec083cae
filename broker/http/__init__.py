"""A small HTTP server for health checks and metrics. It knows nothing of Kafka; its routes are plain functions."""
