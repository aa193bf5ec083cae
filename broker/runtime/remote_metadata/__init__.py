"""The topic-based RemoteLogMetadataManager (KIP-405) on `__remote_log_metadata`."""
