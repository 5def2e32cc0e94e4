"""Work in a process of its own: it reports on the way and is killed with all it started, in time."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from gpuplan.solvers.worker import ChildOutcome, kept_server, load_ahead, run_in_child, start_child
from tests.support.doubles.broken_solvers import __name__ as doubles

pytestmark = pytest.mark.processes


def heard(entry, *arguments, seconds=30.0):
    told = []
    outcome = run_in_child(entry, arguments, seconds, told.append)
    return outcome, [message for message in told if message is not None]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"


def gone_within(pid, seconds):
    end = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not alive(pid)


@pytest.mark.slow
def test_reports_come_in_order_and_the_result_last():
    outcome, told = heard(f"{doubles}:count_to", 5)

    assert told == [1, 2, 3, 4, 5, "done"]
    assert (outcome.last, outcome.killed, outcome.failure) == ("done", False, "")


@pytest.mark.slow
def test_a_large_report_does_not_block_the_parent():
    outcome, _ = heard(f"{doubles}:a_lot_of", 30_000_000)

    assert len(outcome.last) == 30_000_000


@pytest.mark.slow
def test_whatever_a_killed_child_started_is_killed_with_it():
    outcome, told = heard(f"{doubles}:start_another_and_hang", seconds=12.0)

    assert outcome.killed
    assert gone_within(told[0], 10)


@pytest.mark.slow
def test_a_listener_that_raises_ends_the_child():
    pids = []

    def listen(message):
        if message is not None:
            pids.append(message)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_in_child(f"{doubles}:tell_pid_and_hang", (), 60.0, listen)

    assert gone_within(pids[0], 10)


@pytest.mark.slow
def test_one_server_forks_a_child_for_each_question():
    with kept_server():
        (one, _), (other, _), (_, counted) = (
            heard(f"{doubles}:{entry}", *arguments)
            for entry, arguments in (("ids_of_process", ()), ("ids_of_process", ()), ("count_to", (2,)))
        )

    assert one.last.pid != other.last.pid
    assert one.last.parent == other.last.parent
    assert counted == [1, 2, "done"]
    assert gone_within(one.last.parent, 10)


@pytest.mark.slow
def test_after_a_child_that_failed_comes_a_new_server():
    with kept_server():
        failed, _ = heard(f"{doubles}:end_at_once")
        outcome, _ = heard(f"{doubles}:count_to", 1)

    assert failed.failure == "ended with code 3: out of ideas"
    assert outcome == ChildOutcome("done")


@pytest.mark.slow
def test_a_child_that_was_stopped_leaves_its_server_to_the_next():
    def stop(message):
        if message is not None:
            pids.append(message)
            raise KeyboardInterrupt

    pids = []
    with kept_server():
        before, _ = heard(f"{doubles}:ids_of_process")
        with pytest.raises(KeyboardInterrupt):
            run_in_child(f"{doubles}:tell_pid_and_hang", (), 60.0, stop)
        late, told = heard(f"{doubles}:tell_pid_and_hang", seconds=0.5)
        after, _ = heard(f"{doubles}:ids_of_process")

    assert late.killed
    assert gone_within(pids[0], 10)
    assert gone_within(told[0], 10)
    assert after.last.parent == before.last.parent


@pytest.mark.slow
def test_a_server_loads_what_later_children_need():
    with kept_server():
        load_ahead(f"{doubles}:missing", 1)
        load_ahead("colorsys:rgb_to_hls")
        load_ahead(f"{doubles}:hold", b"x" * 1_000_000)
        loaded, _ = heard(f"{doubles}:loaded_modules")
        held, _ = heard(f"{doubles}:what_is_held")
        other, _ = heard(f"{doubles}:ids_of_process")
        again, _ = heard(f"{doubles}:ids_of_process")

    assert "colorsys" in loaded.last
    assert held.last == [b"x" * 1_000_000]
    assert other.last.parent == again.last.parent


@pytest.mark.slow
def test_a_new_server_makes_the_calls_of_the_one_before():
    with kept_server():
        load_ahead(f"{doubles}:hold", "first")
        failed, _ = heard(f"{doubles}:end_at_once")
        held, _ = heard(f"{doubles}:what_is_held")

    assert failed.failure
    assert held.last == ["first"]


@pytest.mark.slow
def test_a_question_that_came_too_late_leaves_the_loading_server_to_the_next():
    with kept_server():
        before, _ = heard(f"{doubles}:ids_of_process")
        load_ahead("time:sleep", 1.5)
        late, told = heard(f"{doubles}:count_to", 3, seconds=0.1)
        after, told_after = heard(f"{doubles}:ids_of_process")

    assert (late.killed, late.last, told) == (True, None, [])
    assert after.last.parent == before.last.parent
    assert told_after == [after.last]


@pytest.mark.slow
def test_a_server_that_came_back_may_be_late_again():
    with kept_server():
        before, _ = heard(f"{doubles}:ids_of_process")
        for _ in range(2):
            load_ahead("time:sleep", 1.0)
            late, _ = heard(f"{doubles}:count_to", 3, seconds=0.1)
            after, _ = heard(f"{doubles}:ids_of_process")

    assert late.killed
    assert after.last.parent == before.last.parent


@pytest.mark.slow
def test_a_server_that_hangs_is_given_up_the_second_time():
    with kept_server():
        before, _ = heard(f"{doubles}:ids_of_process")
        load_ahead("time:sleep", 600)
        outcomes = [heard(f"{doubles}:count_to", 3, seconds=0.1)[0] for _ in range(2)]
        after, _ = heard(f"{doubles}:ids_of_process")

    assert [each.killed for each in outcomes] == [True, True]
    assert after.last.parent != before.last.parent
    assert gone_within(before.last.parent, 10)


def test_nothing_is_loaded_ahead_where_no_server_is_kept(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)

    load_ahead("colorsys:rgb_to_hls")


@pytest.mark.slow
def test_an_entry_point_that_does_not_exist_is_a_failure():
    outcome, _ = heard(f"{doubles}:missing")

    assert "missing" in outcome.failure


@pytest.mark.slow
def test_a_child_is_in_the_session_of_its_parent():
    """Linux shares processors between sessions first: in one of its own, its `nice` would not count."""
    outcome, _ = heard(f"{doubles}:ids_of_process")

    assert outcome.last.session == os.getsid(0)
    assert outcome.last.group != os.getpgid(0)


@pytest.mark.slow
def test_an_interruption_of_all_processes_leaves_the_child_at_work():
    """Ctrl-C goes to the whole foreground group; it is the parent's to decide."""
    outcome, _ = heard(f"{doubles}:interrupt_own_group")

    assert outcome.last == "still here"


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere its timer ends it in time")
def test_a_child_does_not_outlive_a_parent_that_was_killed():
    script = textwrap.dedent(f"""
        from gpuplan.solvers import worker
        entry, tell = "{doubles}:tell_pid_and_hang", lambda pid: pid and print(pid, flush=True)
        worker.run_in_child(entry, (), 600.0, tell)
    """)
    path = os.pathsep.join(folder for folder in sys.path if folder)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path}
    ) as parent:
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.send_signal(signal.SIGKILL)

    assert gone_within(child, 20)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere its timer ends it in time")
def test_a_child_of_a_child_that_was_killed_is_gone_too():
    """As the solver of a plan that is made in a process of its own."""
    outcome, told = heard(f"{doubles}:work_apart_and_hang", seconds=12.0)

    assert outcome.killed
    assert gone_within(told[0], 10)


def test_what_cannot_be_asked_leaves_no_child(monkeypatch):
    begun = []

    class Popen(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            begun.append(self)

    monkeypatch.setattr(subprocess, "Popen", Popen)

    with pytest.raises((AttributeError, pickle.PicklingError)):
        heard(f"{doubles}:count_to", lambda: 5)

    (child,) = begun
    assert child.returncode == -signal.SIGKILL
    child.stdin.close()
    child.stdout.close()


@pytest.mark.slow
def test_question_that_the_server_reads_too_late_is_no_failure():
    """Its time was over while libraries were loading; the server serves the next question."""
    with kept_server():
        load_ahead("time:sleep", 1.0)
        with start_child("builtins:print", ("",), 0.2) as child:
            time.sleep(1.5)
            outcome = child.wait(lambda _: None)

        assert outcome.killed
        assert not outcome.failure
