"""Snapshots written to a scenario's folder, and read back."""

from __future__ import annotations

from gpuplan.planner.sources.files import load_snapshot, scenario_files, write_scenario
from gpuplan.planner.sources.synthetic import generate_snapshot
from tests.support.builders.build import NOW
from tests.support.builders.workload_profiles import profile


def test_a_scenario_without_jobs_is_read_back_too(tmp_path):
    snapshot = generate_snapshot(profile(jobs=[]), seed=0)

    write_scenario(snapshot, tmp_path)

    assert load_snapshot(str(tmp_path)) == snapshot
    assert snapshot.taken_at == NOW


def test_each_node_and_job_has_a_line_of_its_own():
    snapshot = generate_snapshot(profile(), seed=0)

    files = scenario_files(snapshot)

    assert len(files["cluster.json"].splitlines()) == 2 + len(snapshot.cluster.nodes)
    assert len(files["jobs.json"].splitlines()) == 2 + len(snapshot.jobs)
