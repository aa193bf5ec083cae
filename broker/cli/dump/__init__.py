"""Reading a log directory's files for people: what is in them, entry by entry, and what is wrong with them.

Everything streams: a file is read in chunks or batch by batch, whatever its size. Entries know how to show themselves
as Kafka's DumpLogSegments does and as JSON. Nothing here opens a `Log` or writes a byte.
"""
