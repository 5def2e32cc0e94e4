"""Writing the log of a search: whole lines whatever happens, and never in the way of the search."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.planner.io.search_log import read_search, write_search_log
from tests.support.builders.search_log_builders import ASKED, ENDED, MILESTONES


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "search.jsonl"

    with write_search_log(path, ASKED) as log:
        for milestone in MILESTONES:
            log.milestone(milestone)
        log.add(ENDED)

    search = read_search(path)
    assert (search.began, search.milestones, search.finished) == (ASKED, MILESTONES, ENDED)
    assert search.failure is None


def test_heartbeats_are_not_logged(tmp_path):
    path = tmp_path / "search.jsonl"

    with write_search_log(path, ASKED) as log:
        for second in range(5):
            log.milestone(replace(MILESTONES[0], seconds=float(second)))

    assert [line["event"] for line in lines_of(path)] == ["began", "milestone"]


def test_every_line_is_there_as_soon_as_it_is_known(tmp_path):
    path = tmp_path / "search.jsonl"

    with write_search_log(path, ASKED) as log:
        assert [line["event"] for line in lines_of(path)] == ["began"]
        log.milestone(MILESTONES[0])
        assert [line["event"] for line in lines_of(path)] == ["began", "milestone"]


def test_a_line_cut_off_is_passed_over(tmp_path):
    path = tmp_path / "search.jsonl"
    with write_search_log(path, ASKED) as log:
        log.milestone(MILESTONES[0])
        log.milestone(MILESTONES[1])
    path.write_bytes(path.read_bytes()[:-10])

    assert read_search(path).milestones == MILESTONES[:1]


@pytest.mark.parametrize(
    ("error", "words"),
    [(RuntimeError("no room"), "RuntimeError: no room"), (KeyboardInterrupt(), "KeyboardInterrupt")],
)
def test_what_ends_a_search_without_a_plan_is_logged(tmp_path, error, words):
    path = tmp_path / "search.jsonl"

    with pytest.raises(type(error)), write_search_log(path, ASKED):
        raise error

    assert read_search(path).failure == words


def test_a_full_disk_costs_the_rest_of_the_log_alone():
    with write_search_log("/dev/full", ASKED) as log:
        log.milestone(MILESTONES[0])

    assert log.fault == "No space left on device"


def test_an_older_log_gives_way(tmp_path):
    path = tmp_path / "search.jsonl"
    path.write_text("something older, and longer than what follows\n" * 100)

    with write_search_log(path, ASKED):
        pass

    assert read_search(path).began == ASKED


def test_a_path_that_cannot_be_written_is_told_before_the_search(tmp_path):
    with (
        pytest.raises(PlannerError, match="cannot be written: No such file or directory"),
        write_search_log(tmp_path / "no" / "log", ASKED),
    ):
        pytest.fail("the search began")
