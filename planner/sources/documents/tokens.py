"""
Entries of a document in the order of its text, shared by YAML and JSON.

The reader of either syntax turns text into tokens. This module turns tokens into entries with key and line,
and entries into plain data or into the lines of wanted entries. Nothing here is recursive, so that deep
nesting in a document cannot exhaust the interpreter's stack.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.validation.base import Location

MAX_DEPTH: Final = 64
"""Levels of nesting that a document may have; a snapshot has nine."""

LONGEST_NUMBER: Final = 400
"""Digits of a number that are parsed; the range check comes later."""

MOST_VALUES: Final = 5_000_000
"""Values per text; each may have a problem, and all problems are in memory at once."""


class RefusedError(Exception):
    """A text that is not a valid document; the caller adds the file name."""

    def __init__(self, line: int | None, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


class TokenKind(IntEnum):
    """Type of a token."""

    MAPPING = 0
    LIST = 1
    END = 2
    SCALAR = 3


class Token(NamedTuple):
    """The start of a mapping or a list, the end of one, or a scalar."""

    kind: TokenKind
    line: int
    value: Any = None
    text: str = ""
    """Source text of a scalar, used if the scalar is a key."""


class Entry(NamedTuple):
    """One value of a document, with its key or index in its parent."""

    depth: int
    """Number of lists and mappings around it; the outermost is the list of documents of the text."""
    key: str | int
    kind: TokenKind
    value: Any
    line: int
    """Line of its key, or of the entry itself in a list."""


def entries(tokens: Iterable[Token]) -> Iterator[Entry]:
    """The values of all documents in the order of the text; raises on duplicate keys."""
    # One element per open list (None) or mapping (its keys with their lines), and its current key.
    seen: list[dict[str, int] | None] = [None]
    current: list[Any] = [-1]
    for kind, line, value, text in tokens:
        if kind is TokenKind.END:
            seen.pop()
            current.pop()
            continue
        keys = seen[-1]
        if keys is None:
            current[-1] += 1
            yield Entry(len(seen) - 1, current[-1], kind, value, line)
        elif current[-1] is None:
            if kind is not TokenKind.SCALAR:
                raise RefusedError(line, "has a list or a mapping as a key; expected a text.")
            if text in keys:
                raise RefusedError(line, f"has key {text[:60]!r} a second time, first on line {keys[text]}.")
            keys[text] = line
            current[-1] = text
            continue
        else:
            yield Entry(len(seen) - 1, current[-1], kind, value, keys[current[-1]])
            current[-1] = None
        if kind is not TokenKind.SCALAR:
            seen.append({} if kind is TokenKind.MAPPING else None)
            current.append(None if kind is TokenKind.MAPPING else -1)


def build_documents(of_text: Iterable[Entry]) -> list[Any]:
    """The documents as plain data."""
    documents: list[Any] = []
    holders: list[Any] = [documents]
    for number, (depth, key, kind, value, line) in enumerate(of_text):
        if number >= MOST_VALUES:
            raise too_many_values(line)
        del holders[depth + 1 :]
        made = value if kind is TokenKind.SCALAR else {} if kind is TokenKind.MAPPING else []
        holder = holders[depth]
        if isinstance(holder, list):
            holder.append(made)
        else:
            holder[key] = made
        if kind is not TokenKind.SCALAR:
            if depth >= MAX_DEPTH:
                raise RefusedError(line, f"is nested deeper than {MAX_DEPTH} levels; no document needs that.")
            holders.append(made)
    return documents


def too_many_values(line: int | None) -> RefusedError:
    """The error for a text with more values than any cluster needs."""
    return RefusedError(
        line, f"has more than {MOST_VALUES:,} values; a cluster of 100,000 GPUs needs half of it."
    )


def lines_of(of_text: Iterable[Entry], wanted: Iterable[Location]) -> dict[Location, int]:
    """Lines of wanted entries and of all their parents; a location starts with the index of its document."""
    tree: dict[str | int, Any] = {}
    wanted = {location[: length + 1] for location in wanted for length in range(len(location))}
    for location in wanted:
        branch = tree
        for key in location:
            branch = branch.setdefault(key, {})
    found: dict[Location, int] = {}
    branches: list[dict[str | int, Any] | None] = [tree]
    path: list[str | int] = []
    for depth, key, kind, _, line in of_text:
        holder = branches[depth]
        branch_here = holder.get(key) if holder else None
        if branch_here is not None:
            path[depth:] = [key]
            found[tuple(path)] = line
            if len(found) == len(wanted):
                break
        if kind is not TokenKind.SCALAR:
            branches[depth + 1 :] = [branch_here]
    return found
