"""Tests of `broker.quotas`."""
