"""The tiered log (KIP-405): older segments in an object store, and what is known of them.

What a remote segment is, which states it passes, which segments of a history count, what is to be copied and what may
go are decided here without IO. Object stores and what stores segments in them block: they run on pools of threads.
"""
