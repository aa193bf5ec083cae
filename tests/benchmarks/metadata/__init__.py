"""Benchmarks of controllers, of the metadata pipeline, and of its job on Spark."""
