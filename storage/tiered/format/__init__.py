"""Format of remote objects: keys, manifests, chunk indexes, compression and encryption."""
