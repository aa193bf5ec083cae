"""Benchmarks: ratios and profiles, measured in one run. No assertion depends on a time."""
