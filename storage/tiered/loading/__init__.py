"""Construction of remote storage and remote metadata managers from their settings."""
