"""The metadata shell: a cluster's metadata as a tree of files, read from a snapshot or from a live cluster."""
