"""Producers and consumers for system tests: every event is one line of JSON on standard output."""
