"""Durable partitions: plain synchronous code over a file system seam. Knows no event loop, network, quorum or error
code.

Where to look: `log` (append, read, truncate), `segment` and `index/` (the files of a log), `recovery` (what a crash
leaves behind and how it is mended), `validation` (which batches are let in), `producer_state` (duplicates,
transactions), `epochs` (who led when), `log_snapshots` (what stands for a log's beginning), `checkpoints` (the small
text files), `files` (the only code that touches the operating system).
"""
