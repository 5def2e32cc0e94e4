"""
Entries of a document in the order of its text: what YAML and JSON have in common.

A reader of either syntax turns text into tokens. Here tokens become entries that know their key and line,
and entries become plain data, or the lines on which wanted entries stand. Nothing here recurses, so that
nesting in a document is never nesting in the interpreter.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.validation.base import Location

DEEPEST: Final = 64
"""Levels of nesting a document may have; a snapshot has nine."""

LONGEST_NUMBER: Final = 400
"""Digits of a number that are read at all; whether it is in range is judged later."""

MOST_VALUES: Final = 5_000_000
"""Values of one text; each may be wrong in itself, and all that is wrong is held in memory at once."""


class RefusedError(Exception):
    """A text that is no document; caught where its file is known."""

    def __init__(self, line: int | None, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


class Kind(IntEnum):
    """What a token is."""

    MAPPING = 0
    LIST = 1
    END = 2
    SCALAR = 3


class Token(NamedTuple):
    """The start of a mapping or a list, the end of one, or a scalar."""

    kind: Kind
    line: int
    value: Any = None
    text: str = ""
    """Of a scalar, as it reads where it is a key."""


class Entry(NamedTuple):
    """One value of a document, with its key or index in what holds it."""

    depth: int
    """Number of lists and mappings around it; the outermost is the list of the text's documents."""
    key: str | int
    kind: Kind
    value: Any
    line: int
    """Of its key, or of itself in a list."""


def entries(tokens: Iterable[Token]) -> Iterator[Entry]:
    """The values of all documents in the order of the text; duplicate keys are refused."""
    # One element for each open list (None) or mapping (its keys with their lines), and its current key.
    seen: list[dict[str, int] | None] = [None]
    current: list[Any] = [-1]
    for kind, line, value, text in tokens:
        if kind is Kind.END:
            seen.pop()
            current.pop()
            continue
        keys = seen[-1]
        if keys is None:
            current[-1] += 1
            yield Entry(len(seen) - 1, current[-1], kind, value, line)
        elif current[-1] is None:
            if kind is not Kind.SCALAR:
                raise RefusedError(line, "has a list or a mapping as a key; expected a text.")
            if text in keys:
                raise RefusedError(line, f"has key {text[:60]!r} a second time, first on line {keys[text]}.")
            keys[text] = line
            current[-1] = text
            continue
        else:
            yield Entry(len(seen) - 1, current[-1], kind, value, keys[current[-1]])
            current[-1] = None
        if kind is not Kind.SCALAR:
            seen.append({} if kind is Kind.MAPPING else None)
            current.append(None if kind is Kind.MAPPING else -1)


def build(of_text: Iterable[Entry]) -> list[Any]:
    """The documents as plain data."""
    documents: list[Any] = []
    holders: list[Any] = [documents]
    for number, (depth, key, kind, value, line) in enumerate(of_text):
        if number >= MOST_VALUES:
            raise too_many_values(line)
        del holders[depth + 1 :]
        made = value if kind is Kind.SCALAR else {} if kind is Kind.MAPPING else []
        holder = holders[depth]
        if isinstance(holder, list):
            holder.append(made)
        else:
            holder[key] = made
        if kind is not Kind.SCALAR:
            if depth >= DEEPEST:
                raise RefusedError(line, f"is nested deeper than {DEEPEST} levels; no document needs that.")
            holders.append(made)
    return documents


def too_many_values(line: int | None) -> RefusedError:
    """A text that no cluster is large enough for."""
    return RefusedError(
        line, f"has more than {MOST_VALUES:,} values; a cluster of 100,000 GPUs needs half of it."
    )


def lines_of(of_text: Iterable[Entry], wanted: Iterable[Location]) -> dict[Location, int]:
    """Lines of wanted entries and of all they stand in; a location starts with its document's number."""
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
        if kind is not Kind.SCALAR:
            branches[depth + 1 :] = [branch_here]
    return found
