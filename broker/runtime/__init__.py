"""The drivers: what runs the pure cores over real logs, timers and threads. Wire formats stay outside."""
