"""The three indexes beside a segment, in Apache Kafka's file formats.

Kafka maps preallocated files; we keep the newest entries in memory and write the older ones out in blocks, so an
index file is never longer than its entries, costs no descriptor, and holds a bounded part of memory. What is not
yet in the file is rebuilt from the log after a crash, as all of it would be.
"""
