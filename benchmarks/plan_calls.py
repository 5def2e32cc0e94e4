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

files, known, handed = set(), set(), []


def trace(frame, event, _):
    code = frame.f_code
    # Bodies of modules and classes run without fast locals (CO_OPTIMIZED, 1).
    if event != "call" or not code.co_flags & 1:
        return
    files.add(code.co_filename)
    if code in known or not (handed or code.co_name == "plan_epoch"):
        return
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if any(type(frame.f_locals.get(name)).__name__ == "Snapshot" for name in arguments):
        known.add(code)
        handed.append(code.co_filename)


sys.setprofile(trace)
from gpuplan.planner.cli import main

source, *rooms = sys.argv[1:]
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


print(json.dumps([sorted(set(found(files))), found(handed)]), file=sys.stderr)
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


def calls_of_plan(root: Path, source: str, rooms: tuple[str, ...]) -> PlanCalls:
    """Trace the plan of a folder below the root of the project."""
    done = subprocess.run(
        [sys.executable, "-c", _TRACED, source, *rooms], cwd=root, capture_output=True, text=True, check=True
    )
    files, handed = json.loads(done.stderr.splitlines()[-1])
    visited: set[str] = set(handed[:1])
    returns = 0
    for last, file in pairwise(handed):
        returns += file != last and file in visited
        visited.add(file)
    return PlanCalls(len(files), len(visited), returns)
