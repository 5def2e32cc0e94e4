"""Undo log: every step with its inverse, so that a trial can be rolled back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class UndoLog:
    """The steps so far; the last one is undone first."""

    def __init__(self) -> None:
        self._undo: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def mark(self) -> int:
        """A point to which `rollback` returns."""
        return len(self._undo)

    def rollback(self, mark: int) -> None:
        """Undo everything done since a mark."""
        while len(self._undo) > mark:
            deed, arguments = self._undo.pop()
            deed(*arguments)

    def step(self, deed: Callable[..., None], arguments: tuple[Any, ...], undo: tuple[Any, ...]) -> None:
        """Do a step that the same function undoes with other arguments."""
        deed(*arguments)
        self._undo.append((deed, undo))

    def clear(self) -> None:
        """Take the current state as the beginning: earlier steps can no longer be undone."""
        self._undo.clear()
