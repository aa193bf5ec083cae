"""Snapshots of the metadata log (KIP-630): when to create, fetch, import and delete them, without IO."""
