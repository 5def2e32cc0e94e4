"""Run a measurement in its own process: peak memory starts small, and no cache is warm."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_P = ParamSpec("_P")
_T = TypeVar("_T")


def fresh(measurement: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """
    Return the result of a module-level function run in a new process.

    The process is spawned, because a fork would inherit the peak memory of this process.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measurement, *args, **kwargs).result()
