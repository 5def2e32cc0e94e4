"""
The process of a worker: it loads libraries once and forks a child for each question.

Questions come on standard input, in parts that begin with their length; messages go to standard output.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import pkgutil
import signal
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LENGTH_BYTES: Final = 8
"""Bytes before an entry point, and before a question, that give its length."""

_PR_SET_PDEATHSIG: Final = 1
"""Option of prctl(2)."""

_GC_THRESHOLD: Final = 100_000
"""New objects between two garbage collections: nearly all objects of a large model stay."""

AHEAD: Final = "+"
"""Before an entry point that the server loads, and calls itself unless the question is empty."""


@dataclass(frozen=True, slots=True)
class ChildEnded:
    """The last message of each child, from its server."""

    code: int | None
    """As `subprocess` has it; None if the server gave none."""


@dataclass(frozen=True, slots=True)
class ChildBegun:
    """The first message of each child."""

    group: int
    """Its process id, which is that of its group too."""


def read_messages(stream: IO[bytes]) -> Iterator[object]:
    """All whole messages of a child that may have been killed while it wrote one."""
    while True:
        try:
            message = pickle.load(stream)  # noqa: S301 - written by our own child
        except Exception:  # noqa: BLE001 - bytes that are no message can fail in any way
            return
        if message is not None:
            yield message


def kill_on_parent_exit(parent: int) -> None:
    """
    Have the kernel kill this process when its parent, of that process id, has ended; on Linux only.

    The parent counts as ended when the thread that started this process ends.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before the signal was set up
        os._exit(1)


def serve() -> None:
    """Serve the process with the id that is the argument: fork a child for each question until it ends."""
    kill_on_parent_exit(int(sys.argv[1]))
    reports = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # The parent decides what an interruption means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.set_threshold(_GC_THRESHOLD)
    while entry := _read_part().decode():
        if entry.startswith(AHEAD):
            _call_ahead(entry.removeprefix(AHEAD), [_read_part()])
            continue
        # Before the fork, for all questions to come, and while the parent still writes this one.
        answer, deadline = pkgutil.resolve_name(entry), float(_read_part())
        # In a list, from which the child takes it. Read whole, so that a killed child leaves nothing of it.
        question = [_read_part()]
        if time.monotonic() > deadline:
            # It came while libraries were loading, and its answer is not waited for any more.
            _send(ChildEnded(-signal.SIGKILL), reports)
            continue
        gc.freeze()
        server = os.getpid()
        if not (child := os.fork()):
            kill_on_parent_exit(server)
            # A group of its own, so that all that it starts can be killed without its server.
            os.setpgid(0, 0)
            _send(ChildBegun(os.getpid()), reports)
            _answer_question(answer, question, reports)
        question.clear()
        # What the child started and left ends with it; until it is waited for, no other group has its id.
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        with suppress(OSError):
            os.killpg(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        _send(ChildEnded(code), reports)


def _call_ahead(entry: str, question: list[bytes]) -> None:
    with suppress(Exception):  # whatever is wrong, the child that needs it reports it
        call = pkgutil.resolve_name(entry)
        if question[0]:
            call(*pickle.loads(question.pop()))  # noqa: S301 - written by our own parent


def _read_part() -> bytes:
    """The next part of standard input, which begins with its length; empty at the end."""
    return _read(int.from_bytes(_read(LENGTH_BYTES), "big"))


def _read(size: int) -> bytes:
    """So many bytes of standard input; fewer at its end."""
    parts = list[bytes]()
    while size > 0 and (more := os.read(0, size)):
        parts.append(more)
        size -= len(more)
    return b"".join(parts)


def _answer_question(answer: Callable[..., object], question: list[bytes], reports: IO[bytes]) -> NoReturn:
    """Answer a pickled question, reporting on the way, and end this process."""
    try:
        arguments, seconds = pickle.loads(question.pop())  # noqa: S301 - written by our own parent
        signal.setitimer(signal.ITIMER_REAL, seconds)
        # The question stays to the end: it need not be searched for garbage again and again.
        gc.freeze()
        _send(answer(*arguments, partial(_send, reports=reports)), reports)
    except BaseException:  # noqa: BLE001 - a fork must not return to its server
        traceback.print_exc()
        os._exit(1)
    # The end of the process cleans up all that is left; libraries would take long for it.
    os._exit(0)


def _send(message: object, reports: IO[bytes]) -> None:
    pickle.dump(message, reports)
    reports.flush()
