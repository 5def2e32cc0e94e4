"""Suggestions for error messages: the known name closest to a wrong one."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST_NAME: Final = 253
_LONGEST_LIST: Final = 20


class Suggestions:
    """
    Finds near misses, for a limited number of queries.

    Comparing thousands of wrong names with thousands of known ones takes minutes, and a long list of
    suggestions is of no use.
    """

    def __init__(self, questions: int = 100) -> None:
        self._left = questions

    def hint(self, found: str, known: Iterable[str]) -> str:
        """A new line with the closest known name, or an empty text if none is close."""
        if not self._left or len(found) > _LONGEST_NAME:
            return ""
        self._left -= 1
        close = get_close_matches(found, list(known), n=1, cutoff=0.6)
        return f"\n  Maybe '{close[0]}' was meant." if close else ""


def truncated_names(names: Iterable[str]) -> str:
    """Names in order; a long list is cut off."""
    ordered = sorted(names)
    rest = len(ordered) - _LONGEST_LIST
    return ", ".join(ordered[:_LONGEST_LIST]) + (f" and {rest} more" if rest > 0 else "")
