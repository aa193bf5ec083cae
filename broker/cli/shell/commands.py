"""The commands of the metadata shell on a metadata tree: words in, lines or a document out."""

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from broker.cli.shell.nodes import DirectoryNode, LeafNode, MetadataNode

MANUAL: Final[dict[str, str]] = {
    "cat": "cat FILE…: print the content of files.",
    "cd": "cd [DIRECTORY]: change to a directory; / without one.",
    "exit": "exit: leave the shell.",
    "find": "find [PATH…]: list paths and everything below them.",
    "help": "help: list the commands.",
    "history": "history [N]: show the last N commands.",
    "ls": "ls [PATH…]: list directories; *, ? and […] are wildcards.",
    "man": "man COMMAND: describe a command.",
    "pwd": "pwd: print the current directory.",
    "tree": "tree [PATH…]: print directories and files with their contents.",
}

_WILDCARDS: Final = frozenset("*?[")
_DEFAULT_HISTORY: Final = 500


class ShellError(Exception):
    """Failure of a command: one message per line."""


class ShellExit(Exception):
    """Request to leave the shell."""


class MetadataNodeInfo(NamedTuple):
    """A node and its absolute path, as a tuple of names. The name is that of Kafka's shell."""

    path: tuple[str, ...]
    node: MetadataNode

    @property
    def name(self) -> str:
        return self.path[-1] if self.path else "/"


class Shell:
    """The shell. `root` returns the current tree; the current directory and the history persist between commands."""

    def __init__(self, root: Callable[[], DirectoryNode]) -> None:
        self._root = root
        self._current: tuple[str, ...] = ()
        self._history: list[str] = []

    def run(self, words: Sequence[str]) -> Iterator[str]:
        """Yield the lines that a command prints. Raises ShellError, after all available lines, or ShellExit."""
        self._history.append(" ".join(words))
        name, *arguments = words
        commands: dict[str, Callable[[Sequence[str]], Iterator[str]]] = {
            "cat": self._cat,
            "cd": self._cd,
            "exit": self._exit,
            "find": self._find,
            "help": self._help,
            "history": self._show_history,
            "ls": self._ls,
            "man": self._man,
            "pwd": self._pwd,
            "quit": self._exit,
            "tree": self._tree,
        }
        if name not in commands:
            raise ShellError(f"invalid choice: '{name}' (choose from {', '.join(map(repr, MANUAL))})")
        yield from commands[name](arguments)

    def document(self, words: Sequence[str]) -> object:
        """Return a command's output as a document: an object by path for `ls`, `cat` and `tree`, else a list of lines.

        `ls` maps a directory to its names and a file to null, `cat` a file to its content, and `tree` a directory to an
        object. Raises ShellError, even if there is partial output, or ShellExit.
        """
        name, *paths = words
        shown: dict[str, Callable[[MetadataNode], object]] = {"ls": _listed, "cat": _content, "tree": _nested}
        if name not in shown:
            return list(self.run(words))
        if name == "cat" and not paths:
            raise ShellError("cat: name a file.")
        found, problems = self._match(name, paths or ["."])
        if name == "cat":
            problems += [
                f"cat: {_shown(each.path)}: Is a directory" for each in found if isinstance(each.node, DirectoryNode)
            ]
        _raise(problems)
        return {_shown(each.path): shown[name](each.node) for each in found}

    def complete(self, text: str) -> list[str]:
        """Return the paths that begin with `text`."""
        parent, slash, begun = text.rpartition("/")
        found = self._look_up(parent + slash or ".")
        if found is None or not isinstance(found.node, DirectoryNode):
            return []
        names = sorted(name for name in found.node.names() if name.startswith(begun))
        return [
            f"{parent}{slash}{name}{'/' if isinstance(found.node.child(name), DirectoryNode) else ''}" for name in names
        ]

    # Commands

    def _ls(self, arguments: Sequence[str]) -> Iterator[str]:
        found, problems = self._match("ls", arguments or ["."])
        files = [each for each in found if isinstance(each.node, LeafNode)]
        directories = [each for each in found if isinstance(each.node, DirectoryNode)]
        yield from (each.name for each in files)
        for index, each in enumerate(directories):
            if index or files:
                yield ""
            if len(found) > 1:
                yield f"{each.name}:"
            yield from _names(each.node)
        _raise(problems)

    def _cat(self, arguments: Sequence[str]) -> Iterator[str]:
        if not arguments:
            raise ShellError("cat: name a file.")
        found, problems = self._match("cat", arguments)
        for each in found:
            if isinstance(each.node, LeafNode):
                yield each.node.read()
            else:
                problems.append(f"cat: {_shown(each.path)}: Is a directory")
        _raise(problems)

    def _find(self, arguments: Sequence[str]) -> Iterator[str]:
        found, problems = self._match("find", arguments or ["."])
        for each in found:
            yield from _walk(each)
        _raise(problems)

    def _tree(self, arguments: Sequence[str]) -> Iterator[str]:
        found, problems = self._match("tree", arguments or ["."])
        for each in found:
            yield from _branches(each.node, 0)
        _raise(problems)

    def _cd(self, arguments: Sequence[str]) -> Iterator[str]:
        if len(arguments) > 1:
            raise ShellError("cd: too many arguments.")
        found, problems = self._match("cd", arguments or ["/"])
        _raise(problems)
        if len(found) != 1 or not isinstance(found[0].node, DirectoryNode):
            raise ShellError(f"cd: {arguments[0]}: not a directory.")
        self._current = found[0].path
        yield from ()

    def _pwd(self, _arguments: Sequence[str]) -> Iterator[str]:
        yield _shown(self._current)

    def _help(self, _arguments: Sequence[str]) -> Iterator[str]:
        yield from MANUAL.values()

    def _man(self, arguments: Sequence[str]) -> Iterator[str]:
        for name in arguments:
            if name not in MANUAL:
                raise ShellError(f"man: unknown command {name}. Type help to get a list of commands.")
            yield MANUAL[name]
        if not arguments:
            raise ShellError("man: name a command. Type help to get a list of commands.")

    def _show_history(self, arguments: Sequence[str]) -> Iterator[str]:
        count = arguments[0] if arguments else str(_DEFAULT_HISTORY)
        if not count.isdecimal():
            raise ShellError(f"history: {count} is not a number.")
        first = max(0, len(self._history) - int(count))
        for number, line in enumerate(self._history[first:], first + 1):
            yield f"{number:>5}  {line}"

    def _exit(self, _arguments: Sequence[str]) -> Iterator[str]:
        raise ShellExit

    # Paths

    def _match(self, command: str, patterns: Sequence[str]) -> tuple[list[MetadataNodeInfo], list[str]]:
        """Return the nodes that match the patterns, and a message for each pattern without a match."""
        found: list[MetadataNodeInfo] = []
        problems: list[str] = []
        for pattern in patterns:
            matches = list(_expand(self._root(), self._absolute(pattern)))
            found += matches
            if not matches:
                problems.append(f"{command}: {pattern}: No such file or directory.")
        return found, problems

    def _look_up(self, path: str) -> MetadataNodeInfo | None:
        return next(iter(_expand(self._root(), self._absolute(path))), None)

    def _absolute(self, path: str) -> tuple[str, ...]:
        names = [] if path.startswith("/") else list(self._current)
        for name in path.split("/"):
            if name == "..":
                names = names[:-1]
            elif name not in ("", "."):
                names.append(name)
        return tuple(names)


def _expand(root: DirectoryNode, pattern: tuple[str, ...]) -> Iterator[MetadataNodeInfo]:
    """Yield the nodes that match a path, sorted by name."""
    reached = [MetadataNodeInfo((), root)]
    for part in pattern:
        reached = [child for each in reached for child in _children(each, part)]
    yield from reached


def _children(parent: MetadataNodeInfo, part: str) -> Iterator[MetadataNodeInfo]:
    if not isinstance(parent.node, DirectoryNode):
        return
    exact = parent.node.child(part)
    if exact is not None:
        yield MetadataNodeInfo((*parent.path, part), exact)
    elif _WILDCARDS & set(part):
        for name in _names(parent.node):
            child = parent.node.child(name)
            if child is not None and fnmatch.fnmatchcase(name, part):
                yield MetadataNodeInfo((*parent.path, name), child)


def _names(node: MetadataNode) -> list[str]:
    return sorted(node.names()) if isinstance(node, DirectoryNode) else []


def _listed(node: MetadataNode) -> object:
    return _names(node) if isinstance(node, DirectoryNode) else None


def _content(node: MetadataNode) -> object:
    return node.read() if isinstance(node, LeafNode) else None


def _nested(node: MetadataNode) -> object:
    if isinstance(node, LeafNode):
        return node.read()
    children = ((name, node.child(name)) for name in _names(node))
    return {name: _nested(child) for name, child in children if child is not None}


def _walk(found: MetadataNodeInfo) -> Iterator[str]:
    yield _shown(found.path)
    if isinstance(found.node, DirectoryNode):
        for name in _names(found.node):
            child = found.node.child(name)
            if child is not None:
                yield from _walk(MetadataNodeInfo((*found.path, name), child))


def _branches(node: MetadataNode, depth: int) -> Iterator[str]:
    indent = "  " * depth
    if isinstance(node, LeafNode):
        yield from (f"{indent}{line}" for line in node.read().splitlines() or [""])
        return
    for name in _names(node):
        child = node.child(name)
        if child is not None:
            yield f"{indent}{name}:"
            yield from _branches(child, depth + 1)


def _shown(path: tuple[str, ...]) -> str:
    return "/" + "/".join(path)


def _raise(problems: Sequence[str]) -> None:
    if problems:
        raise ShellError("\n".join(problems))
