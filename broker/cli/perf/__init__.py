"""Parts of the benchmarks producer-perf and consumer-perf: statistics, payloads, time formats."""
