"""Tests of `broker.rates`."""
