"""The three indexes of a segment, in Apache Kafka's file formats.

Kafka maps preallocated files. Ottla keeps the newest entries in memory and writes older ones out in blocks, so that an
index file is never longer than its entries, needs no descriptor, and takes a bounded amount of memory. Recovery
rebuilds entries that are not in the file from the log after a crash.
"""
