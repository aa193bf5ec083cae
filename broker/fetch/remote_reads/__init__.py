"""Reads from remote storage on behalf of fetches (KIP-405)."""
