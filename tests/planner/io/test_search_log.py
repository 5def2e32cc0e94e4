"""A log of a search holds whole lines whatever happens, and tells the same when it is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from gpuplan.models.errors import BadInputError, PlannerError
from gpuplan.planner.io.search_log import read_search
from gpuplan.planner.io.search_log_writer import logging_search
from tests.support.builders.search_log_builders import ASKED, ENDED, MILESTONES


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "search.jsonl"

    with logging_search(path, ASKED) as log:
        for milestone in MILESTONES:
            log.milestone(milestone)
        log.add(ENDED)

    search = read_search(path)
    assert (search.began, search.milestones, search.finished) == (ASKED, MILESTONES, ENDED)
    assert search.failure is None


def test_heartbeats_are_not_logged(tmp_path):
    path = tmp_path / "search.jsonl"

    with logging_search(path, ASKED) as log:
        for second in range(5):
            log.milestone(replace(MILESTONES[0], seconds=float(second)))

    assert [line["event"] for line in lines_of(path)] == ["began", "milestone"]


def test_every_line_is_there_as_soon_as_it_is_known(tmp_path):
    path = tmp_path / "search.jsonl"

    with logging_search(path, ASKED) as log:
        assert [line["event"] for line in lines_of(path)] == ["began"]
        log.milestone(MILESTONES[0])
        assert [line["event"] for line in lines_of(path)] == ["began", "milestone"]


def test_killed_at_any_moment_it_leaves_whole_lines(tmp_path):
    path = tmp_path / "search.jsonl"
    script = (
        "import itertools, sys\n"
        "from dataclasses import replace\n"
        "from searches import ASKED, MILESTONES\n"
        "from gpuplan.planner.io.search_log_writer import logging_search\n"
        "with logging_search(sys.argv[1], ASKED) as log:\n"
        "    for found in itertools.count():\n"
        "        log.milestone(replace(MILESTONES[0], found=found))\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    with subprocess.Popen([sys.executable, "-c", script, str(path)], env=environment) as child:
        while child.poll() is None and not (path.exists() and path.stat().st_size > 100_000):
            time.sleep(0.01)
        child.kill()

    assert child.returncode == -9
    assert path.read_bytes().endswith(b"}\n")
    search = read_search(path)
    assert [each.found for each in search.milestones] == list(range(len(search.milestones)))
    assert (search.finished, search.failure) == (None, None)


def test_a_line_cut_off_is_passed_over(tmp_path):
    path = tmp_path / "search.jsonl"
    with logging_search(path, ASKED) as log:
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

    with pytest.raises(type(error)), logging_search(path, ASKED):
        raise error

    assert read_search(path).failure == words


def test_a_full_disk_costs_the_rest_of_the_log_alone():
    with logging_search("/dev/full", ASKED) as log:
        log.milestone(MILESTONES[0])

    assert log.fault == "No space left on device"


def test_an_older_log_gives_way(tmp_path):
    path = tmp_path / "search.jsonl"
    path.write_text("something older, and longer than what follows\n" * 100)

    with logging_search(path, ASKED):
        pass

    assert read_search(path).began == ASKED


def test_a_path_that_cannot_be_written_is_told_before_the_search(tmp_path):
    with (
        pytest.raises(PlannerError, match="cannot be written: No such file or directory"),
        logging_search(tmp_path / "no" / "log", ASKED),
    ):
        pytest.fail("the search began")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", ":1: expected a line with the event began"),
        ('{"event": "failed", "reason": "x"}\n', ":1: expected a line with the event began"),
        ("{}\n", ":1: "),
        ("not JSON\n", ":1: Invalid JSON"),
        (ASKED.model_dump_json().replace("1.0", "2.0") + "\n", ":1: "),
        (ASKED.model_dump_json() + "\n" + '{"event": "milestone", "seconds": "soon"}\n', ":2: "),
        (
            ASKED.model_dump_json()
            + '\n{"event": "milestone", "seconds": 1, "stage": "milp", "objective": 1, "bound": '
            + f"{'9' * 2000}}}\n",
            ":2: Input should be less than",
        ),
    ],
)
def test_what_is_no_log_is_bad_input_with_its_line(tmp_path, text, place):
    path = tmp_path / "search.jsonl"
    path.write_text(text)

    with pytest.raises(BadInputError) as refused:
        read_search(path)

    assert f"{path}{place}" in str(refused.value)


def test_keys_of_a_newer_minor_version_are_ignored(tmp_path):
    path = tmp_path / "search.jsonl"
    path.write_text(json.dumps(ASKED.model_dump(mode="json") | {"colour": "red"}) + "\n")

    assert read_search(path).began == ASKED


def test_a_missing_file_is_bad_input(tmp_path):
    with pytest.raises(BadInputError, match="cannot be read: No such file"):
        read_search(tmp_path / "none.jsonl")
