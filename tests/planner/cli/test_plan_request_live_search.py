"""What people see of a search: one region on a terminal that goes away, nothing anywhere else."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pytest

from gpuplan.planner.cli.plan_request import live_view
from tests.support.builders.search_log_builders import MILESTONES
from tests.support.output.terminal_screen import blank, screen

pytestmark = pytest.mark.processes

GPUPLAN = (sys.executable, "-m", "gpuplan")


@dataclass
class Terminal:
    """One end of a pseudo-terminal, read by a thread; the other is the standard error of a process."""

    main: int
    slave: int
    seen: bytearray = field(default_factory=bytearray)

    def read_on(self):
        with suppress(OSError):
            while data := os.read(self.main, 65536):
                self.seen += data

    @property
    def text(self):
        return self.seen.decode()

    def wait_for(self, words):
        while words not in self.text:
            time.sleep(0.01)


@contextmanager
def terminal():
    main, slave = pty.openpty()
    opened = Terminal(main, slave)
    reader = threading.Thread(target=opened.read_on)
    reader.start()
    try:
        yield opened
    finally:
        os.close(slave)
        reader.join()
        os.close(main)


@pytest.fixture
def stderr_of(monkeypatch):
    """Standard error of this process is that of a terminal, as wide as asked for."""

    @contextmanager
    def attached(opened, *, columns=80, term="xterm-256color", encoding="utf-8"):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("LINES", "24")
        monkeypatch.setenv("TERM", term)
        with os.fdopen(os.dup(opened.slave), "w", encoding=encoding) as stream:
            monkeypatch.setattr(sys, "stderr", stream)
            yield
            monkeypatch.undo()

    return attached


def region(text, words):
    """The lines on the terminal when the words were there for the last time."""
    return [line for line in screen(text[: text.rindex(words) + len(words)]) if line]


def test_a_search_shows_in_one_region_that_goes_away(stderr_of):
    with (
        terminal() as opened,
        stderr_of(opened),
        live_view("planning 3 waiting jobs on 2 nodes", 10.0) as tell,
    ):
        tell(MILESTONES[0])
        opened.wait_for("no plan yet")
        tell(MILESTONES[3])
        opened.wait_for("Ctrl-C keeps this plan")

    lines = region(opened.text, "Ctrl-C keeps this plan")
    assert lines[0].endswith(" planning 3 waiting jobs on 2 nodes")
    assert lines[1] == "  milp  objective 2,784,012  found 2,872,479  bound 2,884,380  gap 3.6 %"
    assert lines[2].endswith("s left  Ctrl-C keeps this plan")
    assert len(lines) == 3
    assert blank(opened.text)


def test_sixty_columns_are_enough(stderr_of):
    with terminal() as opened, stderr_of(opened, columns=60), live_view("planning", 10.0) as tell:
        tell(MILESTONES[3])
        opened.wait_for("Ctrl-C keeps this plan")

    assert region(opened.text, "Ctrl-C keeps this plan")[1:3] == [
        "  milp  objective 2,784,012  found 2,872,479",
        "  bound 2,884,380  gap 3.6 %",
    ]
    assert blank(opened.text)


@pytest.mark.slow
def test_the_clock_ticks_on_without_milestones(stderr_of):
    with terminal() as opened, stderr_of(opened), live_view("planning", 10.0) as tell:
        tell(MILESTONES[3])
        opened.wait_for("2 s used  8 s left")
        opened.wait_for("3 s used  7 s left")


def test_a_search_that_fails_leaves_nothing_on_the_terminal(stderr_of):
    def search(opened):
        with live_view("planning", 10.0) as tell:
            tell(MILESTONES[3])
            opened.wait_for("Ctrl-C")
            raise KeyboardInterrupt

    with terminal() as opened, stderr_of(opened), pytest.raises(KeyboardInterrupt):
        search(opened)

    assert blank(opened.text)


@pytest.fixture
def interruptible():
    """Ctrl-C raises KeyboardInterrupt, even if these tests run in the background of a script."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_is_told_at_once(stderr_of):
    with terminal() as opened, stderr_of(opened), live_view("planning", 10.0) as tell:
        tell(MILESTONES[3])
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        opened.wait_for("the search ends with its best plan so far")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert blank(opened.text)


def test_a_terminal_without_braille_gets_none(stderr_of):
    with terminal() as opened, stderr_of(opened, encoding="ascii"), live_view("planning", 10.0) as tell:
        tell(MILESTONES[3])
        opened.wait_for("Ctrl-C keeps this plan")

    assert opened.text.isascii()
    assert blank(opened.text)


@pytest.mark.parametrize("term", ["dumb", "unknown", ""])
def test_a_terminal_that_cannot_take_back_gets_nothing(stderr_of, term):
    with terminal() as opened, stderr_of(opened, term=term), live_view("planning", 10.0) as tell:
        tell(MILESTONES[3])

    assert opened.text == ""


def test_a_pipe_gets_nothing(capfd):
    with live_view("planning", 10.0) as tell:
        tell(MILESTONES[3])

    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_plan_on_a_terminal_takes_its_progress_back_and_pipes_no_escapes(quickstart):
    with terminal() as opened:
        done = subprocess.run(
            [*GPUPLAN, "plan", quickstart, "--solver", "greedy"],
            stdout=subprocess.PIPE,
            stderr=opened.slave,
            text=True,
            check=True,
            env=os.environ | {"TERM": "xterm", "COLUMNS": "80"},
        )

    assert "\x1b" not in done.stdout
    assert "planning" in opened.text
    assert blank(opened.text)


# A process started in the background of a script ignores SIGINT, and so does all that it starts.
INTERRUPTIBLE = """
import signal, sys
from gpuplan.planner.cli import main
from gpuplan.solvers import SOLVERS
signal.signal(signal.SIGINT, signal.default_int_handler)
SOLVERS["milp"] = SOLVERS["cpsat"] = "tests.support.doubles.broken_solvers:report_and_hang"
main()
"""


@pytest.fixture
def contested(tmp_path):
    """A snapshot that greedy does not solve to the optimum, so that solvers are asked."""
    path = tmp_path / "contested.yaml"
    path.write_text(
        "taken_at: 2026-11-20T12:00:00Z\n"
        "cluster:\n  nodes:\n  - {name: n1, gpus: {model: H100-80GB, count: 2}, cpus: 96, memory_mib: 1Ti}\n"
        "queues:\n- {name: q, quota: {nominal: 8}}\n"
        "jobs:\n"
        "- {name: small, queue: q, priority: 2, request: {gpus: 1}, submitted_at: 2026-11-20T11:00:00Z}\n"
        "- {name: large, queue: q, priority: 1, request: {gpus: 2}, submitted_at: 2026-11-20T11:00:00Z}\n"
    )
    return path


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_search_with_the_best_plan_so_far(contested, tmp_path, number):
    log, saved = tmp_path / "search.jsonl", tmp_path / "plan.json"
    command = [sys.executable, "-c", INTERRUPTIBLE, "plan", contested, "--time-limit", "5m", "-o", saved]
    command += ["--search-log", log, "--detailed-exitcode"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as child:
        # The double reports greedy's plan and a bound, and hangs: nothing but Ctrl-C will end it soon.
        while child.poll() is None and not (log.exists() and '"stage":"milp"' in log.read_text()):
            time.sleep(0.01)
        # What a terminal does at Ctrl-C: the signal goes to all of the group.
        os.killpg(child.pid, number)
        out, err = child.communicate()

    assert child.returncode == 10
    assert (
        err
        == "Interrupted: the search ends with its best plan so far, if any. Ctrl-C again ends the command.\n"
    )
    assert "Plan: 1 to start" in out
    assert "The search was interrupted after" in out
    assert json.loads(saved.read_text())["solution"]["ended"] == "interrupted"
    assert json.loads(log.read_text().splitlines()[-1])["how"] == "interrupted"
