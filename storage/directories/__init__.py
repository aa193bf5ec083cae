"""Log directories of a node (JBOD): names, properties, checkpoints, and delayed file removal."""
