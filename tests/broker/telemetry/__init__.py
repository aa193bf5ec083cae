"""Tests of `broker.telemetry`."""
