"""Client quotas: the quota of each client, and the time that a client is throttled for."""
