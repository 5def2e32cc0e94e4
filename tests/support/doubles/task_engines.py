"""Engines that carry tasks out here and now, or have failing workers; and tasks that fail or hang."""

from __future__ import annotations

import os
import pkgutil
import time
from pathlib import Path

from gpuplan.solvers.worker import ChildOutcome


class Here:
    """Every task in this process, in order."""

    def run(self, tasks):
        for index, task in enumerate(tasks):
            yield index, ChildOutcome(pkgutil.resolve_name(task.entry)(*task.arguments, lambda _: None))


class Failing(Here):
    """As `Here`, but tasks with these indices do not come to an end."""

    def __init__(self, *failing, outcome=None):
        self.failing, self.outcome = (
            failing,
            outcome or ChildOutcome(failure="ended with code -9: no message"),
        )

    def run(self, tasks):
        for index, task in enumerate(tasks):
            if index in self.failing:
                yield index, self.outcome
            else:
                yield from ((index, done) for _, done in super().run([task]))


def die(_report):
    os._exit(3)


def echo(words, _report):
    return words


def hang(pid_file, _report):
    """Write the process id, and never end."""
    if pid_file:
        draft = Path(f"{pid_file}.draft")
        draft.write_text(str(os.getpid()))
        draft.rename(pid_file)
    time.sleep(3600)


def after(path, _report):
    """End as soon as a file is there."""
    while not Path(path).exists():
        time.sleep(0.01)
    return path
