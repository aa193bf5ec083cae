"""Consumers of share groups (KIP-932): membership, share fetches with acknowledgements, and their commands."""
