"""The log of a search: whole lines whatever happens; it tells the same when it is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from gpuplan.models.errors import BadInputError
from gpuplan.planner.io.search_log import read_search
from tests.support.builders.search_log_builders import ASKED


@pytest.mark.slow
def test_killed_at_any_moment_it_leaves_whole_lines(tmp_path):
    path = tmp_path / "search.jsonl"
    script = (
        "import itertools, sys\n"
        "from dataclasses import replace\n"
        "from tests.support.builders.search_log_builders import ASKED, MILESTONES\n"
        "from gpuplan.planner.io.search_log import write_search_log\n"
        "with write_search_log(sys.argv[1], ASKED) as log:\n"
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
