"""Benchmarks of the tiered log."""
