"""
Run functions in parallel, each in a process forked from this one.

A forked process has all data of this process at no cost in time or memory, and its end frees whatever it
used. So parts of a large problem need not be serialized for the processes that solve them. Only a process
without threads may fork, as a worker is before it has run a solver of its own.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, Final, TypeVar

from gpuplan.solvers.worker_process import kill_on_parent_exit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    _T = TypeVar("_T")

_GRACE_SECONDS: Final = 0.1
"""Time after the deadline until a process is killed."""


def run_in_forks(
    calls: Sequence[Callable[[], _T]], *, workers: int, deadline: float
) -> Iterator[tuple[int, _T | None]]:
    """
    (number of the call, its result) as calls end, `workers` at a time; None for calls that fail.

    Calls that have not ended soon after the deadline (an instant of `time.monotonic`) are killed, and calls
    that have not begun by then are left out.
    """
    waiting = list(enumerate(calls))[::-1]
    running: dict[Connection, tuple[int, BaseProcess]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < workers and time.monotonic() < deadline:
                number, call = waiting.pop()
                receiving, process = _fork(call, deadline)
                running[receiving] = number, process
            ready = wait(running, timeout=max(0.0, deadline + _GRACE_SECONDS - time.monotonic()))
            if not ready:
                return
            for receiving in [each for each in running if each in ready]:
                number, process = running.pop(receiving)
                yield number, _received(receiving)
                process.join()
    finally:
        for _, process in running.values():
            process.kill()
            process.join()


def _fork(call: Callable[[], _T], deadline: float) -> tuple[Connection, BaseProcess]:
    """Begin a call in a forked process; returns the connection for its result."""
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_run_call, args=(call, sending, deadline, os.getpid()))
    process.start()
    sending.close()
    return receiving, process


def _run_call(call: Callable[[], _T], sending: Connection, deadline: float, parent: int) -> None:
    kill_on_parent_exit(parent)
    # Garbage collection writes to all objects that it visits, and pages written to are no longer shared.
    gc.freeze()
    signal.setitimer(signal.ITIMER_REAL, max(0.0, deadline - time.monotonic()) + 2 * _GRACE_SECONDS)
    sending.send(call())


def _received(receiving: Connection) -> Any:
    with receiving:
        try:
            return receiving.recv()
        except (EOFError, OSError):  # no message, or an incomplete one
            return None
