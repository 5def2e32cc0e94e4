"""The history keeps whole rows, for one writer at a time, and refuses what is none."""

from __future__ import annotations

import os
import signal
import sqlite3
from datetime import timedelta

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.planner.io.file_lock import LockedError
from gpuplan.planner.service.history import (
    _COLUMNS,
    _TABLE,
    EpochOutcome,
    EpochRecord,
    History,
    KnobChange,
    read_history,
)
from tests.support.builders.build import NOW
from tests.support.children.kill_assert import KILLED, in_child


def record(number=1, **about):
    given_ = {"outcome": EpochOutcome.PLANNED, "began_at": NOW, "ended_at": NOW + timedelta(seconds=2)}
    return EpochRecord(number=number, **given_ | about)


FULL = record(
    7,
    outcome=EpochOutcome.PARTLY_APPLIED,
    error="action a3 failed: no room\nGo on with --resume.",
    taken_at=NOW,
    snapshot="s" * 64,
    policy="p" * 64,
    policy_changes=(KnobChange(knob="disruption.preempt", old=True, new=False),),
    policy_error="policy.yaml:3: no such knob",
    plan_id="7c1e55aa01234567",
    status="FEASIBLE",
    solver="milp",
    objective=-(10**15),
    bound=10**15,
    gap=0.125,
    seconds=2.5,
    actions={"start": 3, "keep": 4},
    done=2,
    done_before=1,
    undone=3,
    skipped_ticks=4,
)


def test_what_is_added_is_read_again(tmp_path):
    path = tmp_path / "h.db"
    with History(path) as history:
        history.add(record(1))
        history.add(FULL)

    assert read_history(path) == (record(1), FULL)


@pytest.mark.parametrize(("last", "numbers"), [(1, [3]), (2, [2, 3]), (9, [1, 2, 3]), (None, [1, 2, 3])])
def test_the_last_epochs_come_oldest_first(tmp_path, last, numbers):
    with History(tmp_path / "h.db") as history:
        for number in (1, 2, 3):
            history.add(record(number))

    assert [each.number for each in read_history(tmp_path / "h.db", last=last)] == numbers


def test_numbers_go_on_where_the_last_run_ended(tmp_path):
    with History(tmp_path / "h.db") as history:
        assert history.next_number == 1
        history.add(record(1))
    with History(tmp_path / "h.db") as history:
        assert history.next_number == 2


def test_an_epoch_is_found_by_its_plan_the_last_one_first(tmp_path):
    with History(tmp_path / "h.db") as history:
        history.add(record(1, plan_id="a"))
        history.add(record(2, plan_id="a", done=1))
        history.add(record(3, plan_id="b"))

        assert history.of_plan("a").number == 2
        assert history.of_plan("c") is None


def test_a_number_is_used_once(tmp_path):
    with History(tmp_path / "h.db") as history:
        history.add(record(1))
        with pytest.raises(PlannerError, match="UNIQUE"):
            history.add(record(1))


def test_a_second_run_is_refused_while_one_is_at_work_and_may_read(tmp_path):
    with History(tmp_path / "h.db") as history:
        history.add(record(1))
        with pytest.raises(LockedError, match=f"history .* process {os.getpid()} "):
            History(tmp_path / "h.db").__enter__()
        assert len(read_history(tmp_path / "h.db")) == 1
    with History(tmp_path / "h.db") as again:
        assert again.next_number == 2


def add_and_die(path, statement):
    """Die just before SQLite carries out a statement of opening the history and adding a row to it."""
    counted = iter(range(1000))
    connect = sqlite3.connect

    def traced(*arguments, **named):
        db = connect(*arguments, **named)

        def deadly(_):
            if next(counted) == statement:
                os.kill(os.getpid(), signal.SIGKILL)

        db.set_trace_callback(deadly)
        return db

    sqlite3.connect = traced
    with History(path) as history:
        history.add(record(history.next_number))


@pytest.mark.slow
def test_killed_at_any_statement_it_holds_whole_rows_and_goes_on(tmp_path):
    path, kills = tmp_path / "h.db", 0
    for statement in range(100):
        ended = in_child(add_and_die, path, statement)
        if ended == 0:
            break
        assert ended == KILLED
        kills += 1
        with History(path) as history:
            number = history.next_number
            history.add(record(number))
        assert [each.number for each in read_history(path)] == list(range(1, number + 1))
        path.unlink()
    assert kills > 5


def test_there_is_a_column_for_everything_in_a_record():
    columns = [line.split()[0] for line in _TABLE.splitlines()[2:-1]]

    assert sorted(columns) == sorted(_COLUMNS)


def test_reading_makes_no_file(tmp_path):
    with pytest.raises(PlannerError, match="there is no history at"):
        read_history(tmp_path / "h.db")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_none_is_refused(tmp_path):
    path, content = tmp_path / "h.db", b"no database, but long enough to be one " * 30
    path.write_bytes(content)

    with pytest.raises(PlannerError, match=r"h\.db cannot be used: file is not a database"):
        read_history(path)
    with pytest.raises(PlannerError, match=r"h\.db cannot be used: file is not a database"):
        History(path).__enter__()
    assert path.read_bytes() == content


def test_the_database_of_another_application_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "h.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE epochs (number INTEGER)")
    db.close()

    for opened in (read_history, lambda path: History(path).__enter__()):
        with pytest.raises(PlannerError, match="found the file of another application"):
            opened(path)


def test_a_row_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "h.db"
    with History(path) as history:
        history.add(record(1))
    with sqlite3.connect(path) as db:
        db.execute("UPDATE epochs SET outcome = 'great'")
    db.close()

    with pytest.raises(PlannerError, match="epoch 1 cannot be read"):
        read_history(path)


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(PlannerError, match="Give a path in a directory that exists"):
        History(tmp_path / "nowhere" / "h.db").__enter__()
