"""Run in child processes only: apply a plan with changes of every kind, and die by SIGKILL."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import suppress
from pathlib import Path

from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.audit_log import AuditLog, AuditWriter
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.io.file_lock import LockedError
from tests.support.builders.build import NOW
from tests.support.doubles.wrapped_cluster import Wrapped
from tests.support.samples.all_actions import PLAN, WORLD


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_write(which, cut):
    """Die in one write to the audit log, `cut` of 1 of its bytes written."""
    write = AuditWriter._write
    count = iter(range(1000))

    def deadly(self, content):
        if next(count) != which:
            write(self, content)
        elif cut == "all":
            write(self, content)
            die()
        else:
            size = {"nothing": 0, "a byte": 1, "half": len(content) // 2, "no end": len(content) - 1}
            size["a line"] = content.index(b"\n") + 1
            os.pwrite(self._descriptor, content[: size[cut]], self._end)
            die()

    AuditWriter._write = deadly


def die_at_statement(db, which, *, writing_only=False):
    """Die just before SQLite carries out one statement; of all, or of those that change the cluster."""
    count = iter(range(100_000))
    state = {"writing": not writing_only}

    def deadly(statement):
        state["writing"] |= statement == "BEGIN IMMEDIATE"
        if state["writing"] and next(count) == which:
            die()

    db.set_trace_callback(deadly)


class Deadly(Wrapped):
    """The cluster, dying at one of its deeds."""

    def __init__(self, inner, which, when):
        super().__init__(inner)
        self.count = iter(range(1000))
        self.which = which
        self.when = when

    def begin(self, action, key):
        return self._do(self.inner.begin, action, key)

    def keep_promises(self, promises, key):
        self._do(self.inner.keep_promises, promises, key)

    def _do(self, deed, *arguments):
        mine = next(self.count) == self.which
        if mine and self.when == "before":
            die()
        result = deed(*arguments)
        if mine:
            die()
        return result


def run(folder, plan=PLAN, cluster=None, *, resume):
    cluster = cluster or SimulatedCluster(Path(folder) / "cluster.db")
    log = AuditLog(Path(folder) / "audit.jsonl")
    apply_plan(plan, cluster, log, actor="ann@login1", now=lambda: NOW, resume=resume)


def resume(folder, plan=PLAN):
    run(folder, plan, resume=True)


def resume_unless_locked(folder, plan):
    """A second apply at once: it is refused, or does what the first one has left."""
    with suppress(LockedError):
        resume(folder, plan)


def apply_dying_at_write(folder, which, cut, *, plan=PLAN, resume=False):
    die_at_write(which, cut)
    run(folder, plan, resume=resume)


def apply_dying_at_deed(folder, which, when, plan=PLAN):
    cluster = Deadly(SimulatedCluster(Path(folder) / "cluster.db"), which, when)
    run(folder, plan, cluster=cluster, resume=False)


def apply_dying_at_statement(folder, which, plan=PLAN):
    cluster = SimulatedCluster(Path(folder) / "cluster.db")
    die_at_statement(cluster._db, which, writing_only=True)
    run(folder, plan, cluster=cluster, resume=False)


def create_dying_at_statement(path, which):
    connect = sqlite3.connect

    def deadly(*arguments, **named):
        db = connect(*arguments, **named)
        die_at_statement(db, which)
        return db

    sqlite3.connect = deadly
    SimulatedCluster.create(path, WORLD)


def create_dying_before_its_name(path):
    Path.rename = lambda *_: die()
    SimulatedCluster.create(path, WORLD)


def advance_dying_at_statement(path, which, seconds):
    cluster = SimulatedCluster(path)
    die_at_statement(cluster._db, which)
    cluster.advance(seconds)
