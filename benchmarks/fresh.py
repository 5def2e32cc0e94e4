"""Run a measurement in a process of its own: peak memory starts small, and nothing is warm."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_P = ParamSpec("_P")
_T = TypeVar("_T")


def fresh(measurement: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """What a function of a module returns there; a fork would begin with our own peak."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measurement, *args, **kwargs).result()
