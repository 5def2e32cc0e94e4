"""
Constraints of jobs (`--constraint`) on features, evaluated on the features of each node.

As the controller does it, operators of one level apply from left to right: `a|b&c` is `(a|b)&c`. Syntax: man
page of sbatch, Slurm 22.05 to 26.05; order of the operators: tried on 22.05.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TOKEN: Final = re.compile(r"\s*([&|()\[\]]|[^&|()\[\]\s]+)")
_COUNT: Final = re.compile(r"\*(\d+)$")
_PLAIN: Final = re.compile(r"[\w.:/@+-]+")


class UnknownConstraintError(ValueError):
    """A constraint that asks for more than features of each node."""


def plain_features(text: str) -> list[str] | None:
    """Features that each node must have; None if the constraint is not a plain list of them."""
    parts = text.split("&")
    return parts if all(_PLAIN.fullmatch(part) for part in parts) else None


def matcher(text: str, nodes: int) -> Callable[[frozenset[str]], bool]:
    """
    A function that is true of the features of nodes on which a job of so many nodes may run.

    Raises
    ------
    UnknownConstraintError
        The constraint is not one on each node by itself.
    """
    if "[" in text and (nodes > 1 or "*" in text):
        raise UnknownConstraintError("its nodes have to agree in a feature")
    tokens = [match[1] for match in _TOKEN.finditer(text)]
    rest = iter((*tokens, ""))
    test, end = _alternatives(rest, nodes)
    if end or "".join(tokens) != re.sub(r"\s", "", text):
        raise UnknownConstraintError("it is not understood")
    return test


def _alternatives(tokens: Iterator[str], nodes: int) -> tuple[Callable[[frozenset[str]], bool], str]:
    """The test of a level, and the token that ends it."""
    found = _operand(next(tokens), tokens, nodes)
    while (operator := next(tokens)) in ("&", "|"):
        found = _joined(operator, found, _operand(next(tokens), tokens, nodes))
    return found, operator


def _joined(
    operator: str, one: Callable[[frozenset[str]], bool], other: Callable[[frozenset[str]], bool]
) -> Callable[[frozenset[str]], bool]:
    if operator == "&":
        return lambda there: one(there) and other(there)
    return lambda there: one(there) or other(there)


def _operand(token: str, tokens: Iterator[str], nodes: int) -> Callable[[frozenset[str]], bool]:
    if token in ("(", "["):
        test, end = _alternatives(tokens, nodes)
        if end != {"(": ")", "[": "]"}[token]:
            raise UnknownConstraintError("its brackets do not match")
        return test
    if (count := _COUNT.search(token)) is not None:
        if int(count[1]) < nodes:
            raise UnknownConstraintError("it counts nodes by feature")
        token = token[: count.start()]
    if not _PLAIN.fullmatch(token):
        raise UnknownConstraintError("it is not understood")
    return lambda there: token in there
