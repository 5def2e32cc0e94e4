"""
Run in child processes only: apply a plan to the queue of a host, or supervise a job, and die by SIGKILL.

`kill_local.py apply PLAN FOLDER WHICH before|after` dies at one of its deeds; with WHICH 0 it does not.
`kill_local.py supervise FOLDER NUMBER WHICH before|after` is a supervisor that does.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.executors.local import job_queue, runs, supervisor
from gpuplan.planner.executors.local.host import LocalHost
from gpuplan.planner.plan_file.plan_file import load_plan
from tests.support.builders.build import NOW


def deadly(count, which, when):
    """Make a function of a module one of the deeds."""

    def wrap(module, name):
        inner = getattr(module, name)

        def deed(*arguments, **more):
            count.append(name)
            here = len(count) == which
            if here and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            found = inner(*arguments, **more)
            if here:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        setattr(module, name, deed)

    return wrap


def apply(plan_file, folder, which, when):
    socket.gethostname = lambda: "gpu01"
    host = LocalHost(Path(folder), allow_mig=True)
    count = []
    wrap = deadly(count, which, when)
    wrap(job_queue, "write_private")
    wrap(runs, "write_private")
    wrap(runs, "signal_process")
    wrap(runs.subprocess, "run")
    audit = AuditLog(Path(folder).parent / "audit.jsonl")
    apply_plan(load_plan(plan_file), host, audit, actor="test", now=lambda: NOW, resume=True)
    print(" ".join(count))


def supervise(folder, number, which, when):
    wrap = deadly([], which, when)
    wrap(supervisor, "create_private")
    wrap(supervisor.os, "fork")
    wrap(supervisor, "write_private")
    wrap(supervisor.os, "write")
    supervisor.main(Path(folder), int(number))


if __name__ == "__main__":
    _, what, first, second, which, when = sys.argv
    {"apply": apply, "supervise": supervise}[what](first, second, int(which), when)
