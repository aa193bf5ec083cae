"""The benches of single paths run: each measures all of its rows with a few calls."""

from pathlib import Path

import pytest

from tests.benchmarks import bench_codec, bench_produce_path, bench_request_paths, bench_transactions


def test_bench_of_request_paths_measures_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_request_paths, "RUNS", 1)
    paths = bench_request_paths.RequestPaths(str(tmp_path))
    for _name, frames, _number in bench_request_paths.rows(paths):
        bench_request_paths.check(paths, frames)
        assert bench_request_paths.measure(paths, frames, 2) > 0


def test_bench_of_the_produce_path_measures_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_produce_path, "RUNS", 1)
    bench = bench_produce_path.ProduceBenchmark(str(tmp_path))
    for _name, call in bench_produce_path.rows(bench):
        assert bench_produce_path.measure(bench, call, 2) > 0


def test_bench_of_transactions_commits(tmp_path: Path) -> None:
    numbers = iter(range(100))
    took = bench_transactions.TransactionBenchmark(str(tmp_path)).run(2, lambda: float(next(numbers)))
    assert took == 2.0


def test_bench_of_the_codec_measures_both_codecs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_codec, "REPEATS", 1)
    monkeypatch.setattr(bench_codec, "RUN_S", 0.0)
    rows = list(bench_codec.rows())
    assert len(rows) == 2 * len(bench_codec.CASES)
    assert all(row.ours_us > 0 and row.peer_us > 0 for row in rows)
