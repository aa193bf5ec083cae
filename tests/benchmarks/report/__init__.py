"""The report of `make bench`: rows, facts about the machine, plots, and the page `docs/benchmarks.md`."""
