"""Jobs of a host, submitted and looked at as tests need it."""

from __future__ import annotations

import os
import time

from gpuplan.models.plan.actions import changes_of
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.action_marks import JobSignal
from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.epoch import plan_epoch
from tests.support.builders.build import NOW, job

SLEEP = "while true; do sleep 0.1; done"


class Jobs:
    """The jobs of one host."""

    def __init__(self, host, folder):
        self.host, self.folder = host, folder

    def submit(self, name, script=SLEEP, *, gpus=1, mig=None, notice=None, limit=None, priority=0, **fields):
        """Queue a shell script."""
        wants = {"mig": {mig: 1}} if mig else {"gpus": gpus}
        made = job(name, **wants, priority=priority, **fields)
        command = {
            "words": ["/bin/bash", "-c", script],
            "environment": {"PATH": os.environ["PATH"], "SECRET": "hunter2"},
            "folder": str(self.folder),
            "output": None,
            "umask": 0o022,
        }
        told = None if notice is None else JobSignal(signal="USR1", seconds=notice)
        return self.host.queue.submit(made, command, notice=told, limit=limit)

    def plan(self, **policy):
        world = self.host.snapshot()
        return plan_epoch(world, Policy(**{"solvers": (), **policy}), seed=0, created_at=world.taken_at)

    def apply(self, plan=None, **how):
        """Apply a plan, by default a new one."""
        plan = plan or self.plan()
        audit = AuditLog(self.folder / "audit.jsonl")
        return apply_plan(plan, self.host, audit, actor="test", now=lambda: NOW, **how)

    def output(self, name):
        """What a job has printed."""
        record = self.record(name)
        part = "jobs" if record.ended is None else "ended"
        file = self.host.queue.folder / part / str(record.number) / "output.txt"
        return file.read_text() if file.exists() else ""

    def record(self, name):
        """The job, or the last one of this name that ended."""
        with self.host.queue.jobs() as known:
            if name in known:
                return known[name]
        return next(each for each in reversed(self.host.queue.ended()) if each.job.name == name)

    def run(self, name):
        return self.host.queue.run(self.record(name))

    def gpus(self):
        """GPUs of each running job."""
        running = (each for each in self.host.snapshot().jobs if each.running)
        return {each.name: sorted(held.index for held in each.running.replicas[0].gpus) for each in running}

    def ended(self, name):
        """The end of a job, which is waited for."""
        wait_until(lambda: self.record(name).ended is not None, f"{name} ends")
        return self.record(name).ended


def kinds(plan):
    return sorted(change.id for change in changes_of(plan.actions))


def wait_until(holds, what, seconds=120):
    """Wait until something holds, which on a busy machine may take long."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"waited {seconds} s in vain until {what}"
        time.sleep(0.02)
