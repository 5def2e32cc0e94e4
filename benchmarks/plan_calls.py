"""Which files of the product run when it plans, traced in a child process."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_TRACED: Final = """
import json
import sys
from pathlib import Path

source, job, *rooms = sys.argv[1:]
files, known, handed, left, forms = set(), set(), [], {}, {}


def trace(frame, event, result):
    code = frame.f_code
    # Bodies of modules and classes run without fast locals (CO_OPTIMIZED, 1).
    if not code.co_flags & 1:
        return
    if event == "return":
        note_form(result)
    elif event == "call":
        files.add(code.co_filename)
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        names = frame.f_locals
        values = [names.get(name) for name in arguments]
        for value in values:
            note_form(value)
        asks = handed or code.co_name == "plan_epoch"
        if asks and code not in known and any(type(value).__name__ == "Snapshot" for value in values):
            known.add(code)
            handed.append(code.co_filename)


def note_form(value):
    kind = type(value)
    if kind not in left:
        # In a small plan the job is among the first objects of a class.
        left[kind] = 500 if kind.__module__.startswith("gpuplan.") else 0
    if not left[kind]:
        return
    left[kind] -= 1
    if any(map(is_the_job, parts(value))):
        left[kind], forms[kind] = 0, kind.__qualname__


# What an object holds in its own fields, and names in its lists; no objects in its lists.
def parts(value):
    if isinstance(value, tuple):
        held = list(value)
    else:
        slots = (name for one in type(value).__mro__ for name in getattr(one, "__slots__", ()))
        held = [getattr(value, name, None) for name in slots if not name.startswith("__")]
        held += getattr(value, "__dict__", {}).values()
    for one in held:
        yield one
        if isinstance(one, (list, tuple, set, frozenset)):
            yield from (each for each in one if isinstance(each, str))


def is_the_job(part):
    return part == job if isinstance(part, str) else type(part) in forms and job in parts(part)


sys.setprofile(trace)
from gpuplan.planner.cli import main

sys.argv = ["gpuplan", "plan", source, "--time-limit", "5s"]
try:
    main()
except SystemExit:
    pass
sys.setprofile(None)
below = tuple(str(Path(room).resolve()) for room in rooms)


def found(names):
    paths = [str(Path(name).resolve()) for name in names if name.endswith(".py")]
    return [path for path in paths if path.startswith(below)]


print(json.dumps([sorted(set(found(files))), found(handed), sorted(forms.values())]), file=sys.stderr)
"""


@dataclass(frozen=True, slots=True)
class PlanCalls:
    """What runs in one plan."""

    files: int
    """Files of which a function runs."""
    with_snapshot: int
    """Files of which a function gets the snapshot, from `plan_epoch` on."""
    returns: int
    """How often, in the order of their first calls, these functions lead back to a file that was left."""
    forms: tuple[str, ...]
    """
    Classes of objects that are about one waiting job: a field of theirs is its name, a list of names with
    it, or such an object. What has the number of the job in arrays does not count.
    """


def calls_of_plan(root: Path, source: str, job: str, rooms: tuple[str, ...]) -> PlanCalls:
    """Trace the plan of a folder below the root of the project, and what a job that waits in it becomes."""
    command = [sys.executable, "-c", _TRACED, source, job, *rooms]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    files, handed, forms = json.loads(done.stderr.splitlines()[-1])
    visited: set[str] = set(handed[:1])
    returns = 0
    for last, file in pairwise(handed):
        returns += file != last and file in visited
        visited.add(file)
    return PlanCalls(len(files), len(visited), returns, tuple(forms))
