"""Undo log: steps with their inverses, so that a trial can be rolled back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class UndoLog:
    """Does steps and remembers how each is undone, the last first."""

    def __init__(self) -> None:
        self._undo: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def mark(self) -> int:
        """A point to which `rollback` returns."""
        return len(self._undo)

    def rollback(self, mark: int) -> None:
        """Undo everything done since a mark."""
        while len(self._undo) > mark:
            step, arguments = self._undo.pop()
            step(*arguments)

    def step(self, step: Callable[..., None], arguments: tuple[Any, ...], undo: tuple[Any, ...]) -> None:
        """Do a step that the same function undoes with other arguments."""
        step(*arguments)
        self._undo.append((step, undo))

    def clear(self) -> None:
        """Take the current state as the beginning: earlier steps can no longer be undone."""
        self._undo.clear()
