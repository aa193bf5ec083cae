"""Dumps of a log directory's files: their content, entry by entry, and their errors.

Files are streamed in chunks or batches. Entries print themselves as Kafka's DumpLogSegments does and as JSON. This
package neither opens a `Log` nor writes files.
"""
