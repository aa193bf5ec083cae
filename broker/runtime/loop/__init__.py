"""Scheduling on one event loop: threads for blocking calls, time slices, waiters, and garbage collection."""
