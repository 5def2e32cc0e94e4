"""Applies to a Slurm cluster in a process of their own, killed before or after one of their commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tests.support.seeds import EVERY_SEED


def kills(commands, *, apart):
    """
    Kills as (number of a changing command, True for before it).

    All of them with `EVERY_SEED`; else some, `apart` so many commands, in turn before and after.
    """
    if EVERY_SEED:
        return [(which, before) for which in range(1, commands + 1) for before in (True, False)]
    return [(which, number % 2 == 0) for number, which in enumerate(range(1, commands + 1, apart))]


_KILLER = """#!{python}
import os, signal, subprocess, sys
with open({count!r}, "a") as log:
    changes = sys.argv[1] not in ("show", "--oneliner")
    if changes:
        log.write("x")
    log.flush()
    if changes and os.path.getsize({count!r}) == {which} and {before}:
        os.kill(os.getppid(), signal.SIGKILL)
        sys.exit(1)
done = subprocess.run([{real!r}, *sys.argv[1:]])
if changes and os.path.getsize({count!r}) == {which}:
    os.kill(os.getppid(), signal.SIGKILL)
sys.exit(done.returncode)
"""


def apply_in_child(plan_file, folder, *more, path=""):
    """Apply a plan with the command; `path` is a folder with commands that come first."""
    words = [
        sys.executable,
        "-m",
        "gpuplan",
        "apply",
        str(plan_file),
        "--executor",
        "slurm",
        "--auto-approve",
        *more,
    ]
    return subprocess.run(
        words,
        env={**os.environ, "PATH": f"{path}:{os.environ['PATH']}"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def killing_scontrol(tmp_path, which, *, before):
    """A folder with a scontrol that kills its parent before or after the change of this number, once."""
    folder, count = tmp_path / "killer", tmp_path / "count"
    folder.mkdir()
    count.touch()
    real = shutil.which("scontrol")
    text = _KILLER.format(python=sys.executable, count=str(count), which=which, before=before, real=real)
    (folder / "scontrol").write_text(text)
    (folder / "scontrol").chmod(0o755)
    return folder
