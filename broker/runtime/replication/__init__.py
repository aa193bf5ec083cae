"""Drivers of followers: fetchers, their connections to leaders, and replication throttles."""
