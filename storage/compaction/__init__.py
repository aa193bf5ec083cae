"""Log compaction: rules, the key-to-offset map, cleaning passes, and segment replacement."""
