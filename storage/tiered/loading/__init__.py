"""Construction of remote storage and of remote metadata managers from their settings."""
