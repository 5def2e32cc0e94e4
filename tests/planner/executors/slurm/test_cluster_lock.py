"""The lock of a Slurm cluster: one holder at a time, whatever interleaves; a killed one blocks no longer."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.planner.executors.interface import ExecutionError, UnreachableError
from gpuplan.planner.executors.slurm import cluster_lock as module
from gpuplan.planner.executors.slurm.cluster_lock import ClusterLock
from gpuplan.planner.io.file_lock import LockedError
from tests.support.children import hold_slurm_lock
from tests.support.seeds import examples


class Died(BaseException):
    """Stands for SIGKILL."""


class Controller:
    """A controller with reservations."""

    def __init__(self):
        self.now, self.reservations = 1_000, {}

    def call(self, *words):
        if words[0] == "sdiag":
            return f"sdiag output at Mon Nov 23 20:00:00 2026 ({self.now})\nand more"
        if words[0] == "sinfo":
            return "gpu01\ngpu02"
        name = next(word for word in words if word.startswith("ReservationName=")).partition("=")[2]
        begin = next((word for word in words if word.startswith("StartTime=")), "")
        if words[1] != "create" and name not in self.reservations:
            raise ExecutionError("Requested reservation is invalid")
        if words[1] == "delete":
            del self.reservations[name]
        else:
            self.reservations[name] = {"StartTime": begin.removeprefix("StartTime=uts")}
        return ""

    def table(self):
        return {name: dict(fields) for name, fields in self.reservations.items()}


@pytest.fixture
def controller(monkeypatch):
    found = Controller()
    monkeypatch.setattr(module, "call", found.call)
    monkeypatch.setattr(module, "reservations_table", found.table)
    monkeypatch.setattr(module, "_clock", lambda: float(found.now))
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    return found


def on(monkeypatch, machine):
    monkeypatch.setattr(module, "_where", lambda: machine)


def test_the_second_is_refused_and_told_of_the_first(controller):
    with (
        ClusterLock("Slurm cluster a").held(),
        pytest.raises(LockedError, match=rf"Slurm cluster a is in use by process {os.getpid()} on .* until"),
        ClusterLock("Slurm cluster a").held(),
    ):
        pass
    assert not controller.reservations
    with ClusterLock("Slurm cluster a").held():
        assert len(controller.reservations) == 1


def test_a_lock_of_another_machine_blocks_until_it_expires(controller, monkeypatch):
    on(monkeypatch, "aaaaaaaa")
    ClusterLock("cluster")._acquire()
    on(monkeypatch, "bbbbbbbb")
    controller.now += module._LASTS - 1
    with pytest.raises(LockedError), ClusterLock("cluster").held():
        pass
    controller.now += 1
    with ClusterLock("cluster").held():
        assert len(controller.reservations) == 1


def test_a_lock_that_is_renewed_does_not_expire(controller, monkeypatch):
    on(monkeypatch, "aaaaaaaa")
    mine = ClusterLock("cluster")
    mine._acquire()
    for _ in range(10):
        controller.now += module._LASTS // 2
        mine.keep()
        on(monkeypatch, "bbbbbbbb")
        with pytest.raises(LockedError), ClusterLock("cluster").held():
            pass
        on(monkeypatch, "aaaaaaaa")


@pytest.mark.parametrize("over", [True, False], ids=["still held", "given up again"])
def test_a_process_that_slept_while_another_one_held_the_lock_goes_not_on(controller, monkeypatch, over):
    on(monkeypatch, "aaaaaaaa")
    slept, other = ClusterLock("cluster"), ClusterLock("cluster")
    slept._acquire()
    controller.now += module._LASTS
    on(monkeypatch, "bbbbbbbb")
    other._acquire()
    if over:
        other._release()
    on(monkeypatch, "aaaaaaaa")
    with pytest.raises(LockedError, match="taken over"):
        slept.keep()
    assert len(controller.reservations) == (0 if over else 1)


def test_a_process_that_slept_and_was_not_missed_goes_on(controller):
    mine = ClusterLock("cluster")
    mine._acquire()
    controller.now += 10 * module._LASTS
    mine.keep()
    assert len(controller.reservations) == 1
    with pytest.raises(LockedError), ClusterLock("cluster").held():
        pass
    mine._release()
    assert not controller.reservations


def test_a_lock_that_an_operator_removed_is_lost(controller):
    mine = ClusterLock("cluster")
    mine._acquire()
    controller.reservations.clear()
    controller.now += 30
    with pytest.raises(LockedError, match="removed"):
        mine.keep()


def test_a_lock_that_was_made_without_an_answer_does_not_block_its_maker(controller, monkeypatch):
    def unanswered(*words):
        controller.call(*words)
        if words[1:2] == ("create",):
            raise UnreachableError("no answer")
        return controller.call(*words) if words[0] in ("sdiag", "sinfo") else ""

    with monkeypatch.context() as patch:
        patch.setattr(module, "call", unanswered)
        with pytest.raises(UnreachableError), ClusterLock("cluster").held():
            pass
    assert len(controller.reservations) == 1
    with ClusterLock("cluster").held():
        assert len(controller.reservations) == 1


def test_a_lock_of_which_two_answers_are_lost_does_not_block_its_maker(controller, monkeypatch):
    """That it was made, and then the list that would tell so."""
    made = []

    def unanswered(*words):
        if words[1:2] == ("create",):
            if made:
                raise ExecutionError("it exists")
            made.append(controller.call(*words))
            raise UnreachableError("no answer")
        return controller.call(*words)

    def table():
        if made:
            raise UnreachableError("no answer")
        return controller.table()

    with monkeypatch.context() as patch:
        patch.setattr(module, "call", unanswered)
        patch.setattr(module, "reservations_table", table)
        with pytest.raises(UnreachableError), ClusterLock("cluster").held():
            pass
    assert len(controller.reservations) == 1
    with ClusterLock("cluster").held():
        assert len(controller.reservations) == 1


@pytest.mark.parametrize(("age", "answer_after"), [(module._LASTS - 1, 1), (module._LASTS, 0)])
def test_a_lock_that_is_deleted_as_it_is_extended_is_not_held(controller, monkeypatch, age, answer_after):
    """The other process reads the table before the extension, and deletes after it what had expired."""
    mine, other, tables = ClusterLock("cluster"), ClusterLock("cluster"), []
    on(monkeypatch, "aaaaaaaa")
    mine._acquire()
    controller.now += age

    def interleaved(*words):
        if words[1:2] not in (("update",), ("create",)) or tables:
            return controller.call(*words)
        controller.now += answer_after
        tables.extend([None, controller.table()])
        controller.call(*words)
        with monkeypatch.context() as patch, suppress(LockedError):
            on(patch, "bbbbbbbb")
            patch.setattr(module, "reservations_table", lambda: tables.pop() or controller.table())
            patch.setattr(module, "call", controller.call)
            tables[:0] = [None] * 9
            other._acquire()
        return ""

    monkeypatch.setattr(module, "call", interleaved)
    with pytest.raises(LockedError):
        mine.keep()


class Turns:
    """Lets one of several threads go on at a time, from one call to the controller to the next."""

    def __init__(self, planners, order, deaths, jumps):
        self.controller, self.order = Controller(), iter(order)
        self.deaths, self.jumps = set(deaths), jumps
        self.change = threading.Condition()
        self.waits, self.turn, self.running, self.dead = set(), None, planners, set()
        self.steps = 0

    def pause(self):
        """Wait for the turn of this thread; time may pass meanwhile, and it may die instead."""
        me = threading.get_ident()
        with self.change:
            if me in self.dead:
                raise Died
            self.waits.add(me)
            self._next()
            self.change.wait_for(lambda: self.turn == me)
            self.turn = None
            self.waits.discard(me)
            self.steps += 1
            self.controller.now += self.jumps.get(self.steps, 0)
            if self.steps in self.deaths:
                self.dead.add(me)
                raise Died

    def end(self):
        with self.change:
            self.running -= 1
            self._next()

    def _next(self):
        if self.running and len(self.waits) == self.running and self.turn is None:
            among = sorted(self.waits)
            self.turn = among[next(self.order, self.steps) % len(among)]
            self.change.notify_all()

    def call(self, *words):
        self.pause()
        return self.controller.call(*words)

    def table(self):
        self.pause()
        return self.controller.table()


STEPS = st.integers(1, 50)


@pytest.mark.slow
@settings(max_examples=examples(400))
@given(
    st.integers(2, 3),
    st.lists(st.integers(0, 5), max_size=60),
    st.lists(STEPS, max_size=2),
    st.dictionaries(STEPS, st.sampled_from((25, module._LASTS - 1, module._LASTS)), max_size=3),
)
def test_no_two_hold_it_in_any_order_of_their_calls(planners, order, deaths, jumps):
    turns = Turns(planners, order, deaths, jumps)
    valid, twice = {}, []

    def plan(number):
        lock = ClusterLock("cluster")
        try:
            for _ in range(4):
                try:
                    with lock.held():
                        for _ in range(3):
                            lock.keep()
                            # Until then it may change the cluster.
                            valid[number] = lock._renewed + module._LASTS
                            if sum(until > turns.controller.now for until in valid.values()) > 1:
                                twice.append(dict(valid))
                            turns.pause()
                        valid.pop(number)
                except LockedError:
                    valid.pop(number, None)
        except Died:
            pass
        finally:
            turns.end()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "call", turns.call)
        patch.setattr(module, "reservations_table", turns.table)
        patch.setattr(module, "_clock", lambda: float(turns.controller.now))
        patch.setattr(module, "_where", lambda: f"{threading.get_ident():x}".rjust(8, "0")[-8:])
        patch.setattr(module.time, "sleep", lambda _: None)
        threads = [threading.Thread(target=plan, args=(number,)) for number in range(planners)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not twice


# --- on a real Slurm ---------------------------------------------------------------------------------------


def holder(witness, *, machine="", longest=0.2, path=""):
    words = [sys.executable, hold_slurm_lock.__file__, machine, str(witness), str(longest)]
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}" if path else os.environ["PATH"]}
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)


def killed(process):
    """Lines that a process has printed, which is killed now."""
    process.send_signal(signal.SIGKILL)
    return process.communicate()[0].splitlines()


@pytest.mark.slurm
@pytest.mark.slow
def test_processes_that_are_killed_anywhere_leave_the_lock_to_others_at_once(slurm, tmp_path):
    draw, said = random.Random(7), []
    holders = [holder(tmp_path / "witness") for _ in range(3)]
    for _ in range(8):
        said.append(holders[0].stdout.readline().strip())
        time.sleep(draw.uniform(0, 0.4))
        said += killed(holders.pop(0))
        holders.append(holder(tmp_path / "witness"))
    for each in holders:
        said += killed(each)
    assert set(said) == {"held"}
    with ClusterLock("cluster").held():
        pass
    assert "No reservations" in slurm.command("scontrol", "show", "reservation")


@pytest.mark.slurm
@pytest.mark.slow
def test_a_killed_process_of_another_machine_blocks_until_its_lock_expires(slurm, tmp_path, monkeypatch):
    other = holder(tmp_path / "witness", machine="0123abcd", longest=1000)
    assert other.stdout.readline() == "held\n"
    killed(other)
    with pytest.raises(LockedError), ClusterLock("cluster").held():
        pass
    now = module._controller_time
    monkeypatch.setattr(module, "_controller_time", lambda: now() + module._LASTS)
    with ClusterLock("cluster").held():
        pass
    assert "No reservations" in slurm.command("scontrol", "show", "reservation")


@pytest.mark.slurm
@pytest.mark.slow
def test_a_lock_keeps_no_job_away_and_is_renewed(slurm, monkeypatch):
    monkeypatch.setattr(module, "_some_node", lambda: "gpu01")
    cluster = ClusterLock("cluster")
    with cluster.held():
        job = slurm.submit("-N1", "-w", "gpu01", "--exclusive", "--time=infinite", comment="")
        slurm.command("scontrol", "release", job)
        slurm.wait_running(job)
        (before,) = module._locks()
        monkeypatch.setattr(module, "_RENEWED_AFTER", 0.0)
        time.sleep(1.1)
        cluster.keep()
        (after,) = module._locks()
    assert (after.name, after.expires > before.expires) == (before.name, True)
    assert "No reservations" in slurm.command("scontrol", "show", "reservation")


def test_to_look_needs_no_lock_and_makes_none(controller):
    """A lock that is over keeps no look away, and is left to the next apply."""
    held = ClusterLock("it")
    with held.held(), pytest.raises(LockedError):
        ClusterLock("it").require_free()
    left = ClusterLock("it")
    left._create()
    controller.now += 121

    ClusterLock("it").require_free()
    assert len(controller.reservations) == 1
