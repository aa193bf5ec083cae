"""Parts of `ottla reassign-partitions`: JSON files and throttles."""
