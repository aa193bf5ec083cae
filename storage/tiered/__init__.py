"""Tiered storage (KIP-405): older log segments in remote storage, and their metadata.

Pure code decides which states a segment passes, which segments belong to a log, which are copied and which are deleted.
Object stores and the code that stores segments in them block; they run on thread pools.
"""
