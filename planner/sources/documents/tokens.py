"""
Positions: the lines of a document's entries, from the tokens of its text; shared by YAML and JSON.

Only a file with a problem is read this way, which takes several times as long as building its data. Nothing
here is recursive, so that deep nesting in a document cannot exhaust the interpreter's stack.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.validation.base import Location

MAX_DEPTH: Final = 64
"""Levels of nesting that a document may have; a snapshot has nine."""

LONGEST_NUMBER: Final = 400
"""Digits of a number that are parsed; the range check comes later."""

MOST_VALUES: Final = 5_000_000
"""Values per text; each may have a problem, and all problems are in memory at once."""

SPLIT_IT: Final = "  Of a larger snapshot put the jobs into several files of one folder, and read the folder."
"""What to do where a text is too large."""


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
    text: str = ""
    """The key that a scalar is, if it is one."""


def lines_of(tokens: Iterable[Token], wanted: Iterable[Location]) -> dict[Location, int]:
    """Lines of wanted entries and of all their parents; a location starts with the index of its document."""
    missing = {location[: length + 1] for location in wanted for length in range(len(location))}
    found: dict[Location, int] = {}
    for location, line, _ in _entries(tokens):
        if location in missing:
            found[location] = line
            if len(found) == len(missing):
                break
    return found


def refuse(tokens: Iterable[Token], syntax: str) -> NoReturn:
    """Raise why a text is refused, with its line: a key occurs twice, or the text is too large or deep."""
    for number, (location, line, kind) in enumerate(_entries(tokens)):
        if number >= MOST_VALUES:
            raise too_many_values(line)
        if kind is not TokenKind.SCALAR and len(location) > MAX_DEPTH:
            raise RefusedError(line, f"is nested deeper than {MAX_DEPTH} levels; no document needs that.")
    # Whatever the reader of a syntax refuses is refused above as well, so this should never be reached.
    raise RefusedError(None, f"expected {syntax}, found something else.")


def too_many_values(line: int | None) -> RefusedError:
    """The error for a text with more values than any cluster needs."""
    return RefusedError(
        line,
        f"has more than {MOST_VALUES:,} values; a cluster of 100,000 GPUs needs half of it.\n{SPLIT_IT}",
    )


def _entries(tokens: Iterable[Token]) -> Iterator[tuple[Location, int, TokenKind]]:
    """Each value with its location, and the line of its key, or of the value itself in a list."""
    # One element per open list (None) or mapping (its keys with their lines), and the index or key in it.
    seen: list[dict[str, int] | None] = [None]
    current: list[Any] = [-1]
    for kind, line, text in tokens:
        if kind is TokenKind.END:
            seen.pop()
            current.pop()
        elif (keys := seen[-1]) is None:
            current[-1] += 1
            yield tuple(current), line, kind
        elif current[-1] is not None:
            yield tuple(current), keys[current[-1]], kind
        elif text in keys:
            raise RefusedError(line, f"has key {text[:60]!r} a second time, first on line {keys[text]}.")
        else:
            keys[text] = line
            current[-1] = text
            continue
        if kind is TokenKind.MAPPING or kind is TokenKind.LIST:
            seen.append({} if kind is TokenKind.MAPPING else None)
            current.append(None if kind is TokenKind.MAPPING else -1)
        elif seen[-1] is not None:
            current[-1] = None  # a key comes next
