"""Voters, majorities, and changes of the voter set (KIP-853), without IO."""
