"""The files of the state below one directory of a store, written by executors and by the driver, named by offsets.

`sections/SS/%020d.arrow` has the rows of a section at an end offset, `registry/%020d.checkpoint` the registry, and
`commits/%020d-%010d.json`, written last, names the files of a whole state. Writing any of them is idempotent, so every
step may be repeated.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from spark_jobs.metadata_snapshots.commits import COMMITS, Commit, commit_end
from spark_jobs.store_directory import StoreDirectory

STATE: Final = "_state/"
SECTIONS: Final = "sections/"
REGISTRIES: Final = "registry/"
BRANCHES: Final = "at/"
LEFT_MS: Final = 24 * 60 * 60 * 1000
KEPT_COMMITS: Final = 4
"""More than one, so that a job that begins from an older commit finds its files for a while."""

_ARROW: Final = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True)
class StateStore(StoreDirectory):
    """The files of a state, written below `branch`; files of other branches can be read by name, and stay."""

    directory: str = STATE
    branch: str = ""

    def read(self, name: str) -> bytes:
        return b"".join(self.get(name))

    # Sections

    def write_section(self, section: int, end: int, rows: pa.Table) -> str:
        """Write a section; return the name of the file."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema, options=_ARROW) as writer:
            writer.write_table(rows)
        name = f"{self.branch}{SECTIONS}{section:02d}/{end:020d}.arrow"
        self.put(name, [memoryview(sink.getvalue())])
        return name

    def read_section(self, name: str) -> pa.Table:
        return pa.ipc.open_file(pa.py_buffer(self.read(name))).read_all()

    def write_registry(self, end: int, state: bytes) -> str:
        name = f"{self.branch}{REGISTRIES}{end:020d}.checkpoint"
        self.put(name, [state])
        return name

    # Commits

    def write_commit(self, commit: Commit) -> None:
        """Write a commit; all its files must exist."""
        self.put(self.branch + commit.name, [commit.to_json()])

    def newest_commit(self, at_most: int | None = None) -> Commit | None:
        """Return the latest commit at or before an offset. Raises InvalidCommit."""
        names = [name for end, name in self._commits() if at_most is None or end <= at_most]
        return self._read_commit(names[-1]) if names else None

    def commits(self) -> list[Commit]:
        """Return all commits, the newest last. Raises InvalidCommit."""
        return [self._read_commit(name) for _, name in self._commits()]

    def _commits(self) -> list[tuple[int, str]]:
        prefix = self.branch + COMMITS
        names = [found.key for found in self.listed(prefix)]
        ends = [(commit_end(name.removeprefix(prefix)), name) for name in names]
        return sorted((end, name) for end, name in ends if end is not None)

    def _read_commit(self, name: str) -> Commit:
        return Commit.from_json(self.read(name))

    # Removal of unneeded files

    def remove_commits(self, old: Iterable[Commit], kept: Iterable[Commit]) -> None:
        """Remove commits, then the files that only they name: an existing commit is complete."""
        old = list(old)
        needed = {file for commit in kept for file in commit.files.values()}
        named = {file for commit in old for file in commit.files.values() if file.startswith(self.branch)}
        self.delete([self.branch + commit.name for commit in old])
        self.delete(sorted(named - needed))

    def settle(self) -> Commit | None:
        """Remove files of interrupted steps and incomplete commits; return the newest complete commit, or None.

        Called by the owner of the state before its first step.
        """
        found = {file.key for prefix in (SECTIONS, REGISTRIES) for file in self.listed(self.branch + prefix)}
        commits = self.commits()
        whole = [commit for commit in commits if found.issuperset(commit.files.values())]
        self.delete([self.branch + commit.name for commit in commits if commit not in whole])
        self.delete(sorted(found - {file for commit in whole for file in commit.files.values()}))
        return whole[-1] if whole else None

    def remove_branch(self) -> None:
        """Remove everything below the branch."""
        assert self.branch, "the trunk is not removed"
        self.delete([found.key for found in self.listed(self.branch)])

    def remove_left_branches(self, now_ms: int) -> None:
        """Remove the branches of interrupted jobs after the time limit of a run."""
        old = [found.key for found in self.listed(BRANCHES) if now_ms - found.modified_ms > LEFT_MS]
        self.delete(old)
