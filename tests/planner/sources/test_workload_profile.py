"""Profiles that cannot be drawn from are refused, with what was found and where."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from gpuplan.models.errors import BadInputError
from gpuplan.planner.sources.synthetic import load_workload_profile
from tests.support.builders.workload_profiles import SMALL, profile


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"queues": [{"queue": {"name": "a"}}]}, "expected a share above 0 in queues, found none"),
        ({"durations": [{"share": 1, "shortest": "2h", "longest": "1h"}]}, "expected shortest <= longest"),
        (
            {"jobs": [{"count": 1, "request": {"mig": {"1g.10gb": 1}}}]},
            "asks for profile '1g.10gb', which no GPU model in the cluster offers",
        ),
        (
            {"jobs": [{"count": 1, "queues": ["top"], "request": {}}]},
            "expected queues with a share in jobs[0].queues, found top",
        ),
        (
            {"queues": [{"queue": {"name": "a", "parent": "z"}, "share": 1}]},
            "queue 'a' has parent 'z', which is no queue of the snapshot",
        ),
        (
            {"rack_power": [{"rack": "r9", "watts": 9}]},
            "a power cap for rack 'r9', in which no node stands",
        ),
        (
            {"jobs": [{"count": 1, "request": {}, "datasets": ["images"]}]},
            "job 'jobs-0' reads dataset 'images', which the cluster does not have",
        ),
        (
            {"nodes": [SMALL["nodes"][0] | {"draining": 6}]},
            "expected at most 5 draining nodes, found 6",
        ),
        ({"nodes": [SMALL["nodes"][0]] * 2}, "node 'big' is given a second time; expected each node once"),
    ],
)
def test_a_profile_that_cannot_be_drawn_from_is_refused(changes, message):
    with pytest.raises(ValidationError) as caught:
        profile(**changes)

    assert message in str(caught.value)


def test_a_bad_profile_file_is_refused_with_its_line(tmp_path):
    path = tmp_path / "profile.yaml"
    path.write_text(
        "name: x\n"
        "taken_at: 2026-11-20T12:00:00Z\n"
        "nodes:\n- {count: 0, node: {name: n}}\n"
        "queues:\n- {queue: {name: q}, share: 1}\n"
        "jobs: []\n"
        "backlog: sometimes\n"
    )

    with pytest.raises(BadInputError) as caught:
        load_workload_profile(path)

    assert [problem.place for problem in caught.value.problems] == [f"{path}:4", f"{path}:8"]
