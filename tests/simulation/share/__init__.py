"""Seeded histories of share partitions: leaders, their coordinator, and members."""
