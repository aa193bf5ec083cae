"""Durable partitions: synchronous code over a file system interface, without event loop, network, quorum or error
codes.

Modules: `log` (append, high watermark, truncate), `local_log` (the segments of a log: roll, read, flush), `segment` and
`index/` (the files of a segment), `recovery` (repair after a crash), `validation` (checks of produced batches),
`producer_state` (duplicates, transactions), `epochs` (leader epochs), `log_snapshots` (snapshots that replace the
beginning of a log), `directories/` (log directories and checkpoint files), `files` (the only module that calls the
operating system).
"""
