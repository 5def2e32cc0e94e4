"""Excerpts say about a job what the whole plan says, and there is none of a file that was changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.sizes import SIZES, profile_of
from gpuplan.models.plan.actions import JobAction, Start
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.explain.job import explain
from gpuplan.planner.io.atomic_write import hash_path
from gpuplan.planner.plan_file import plan_file
from gpuplan.planner.plan_file.excerpt import job_entries, read_excerpt
from gpuplan.planner.plan_file.plan_file import save_plan
from gpuplan.planner.sources.files import load_policy, load_snapshot
from gpuplan.planner.sources.synthetic import generate_snapshot
from tests.support.builders.build import NOW
from tests.support.samples.all_actions import PLAN as EVERY_ACTION
from tests.support.samples.sample_plans import small_plan

SCENARIOS = Path(__file__).parents[3] / "scenarios"


@pytest.fixture(autouse=True)
def all_plans_are_large(monkeypatch):
    monkeypatch.setattr(plan_file, "MANY_ACTIONS", 0)


def of_scenario(name, **rules):
    folder = SCENARIOS / name
    policy = load_policy(str(folder / "policy.yaml")) if (folder / "policy.yaml").exists() else Policy()
    policy = policy.model_copy(update={"solvers": (), **rules})
    return plan_epoch(load_snapshot(str(folder)), policy, seed=0, created_at=NOW)


def told_alike(plan, path):
    """The jobs of a plan that their excerpt suffices to explain; all excerpts say what the plan says."""
    save_plan(plan, path)
    explained = set()
    for name in plan.snapshot.job_by_name:
        part = read_excerpt(path, name)
        assert (part.job, read_excerpt(path, f"job/{name}").job) == (name, name)
        assert job_entries(part.plan, name) == job_entries(plan, name)
        if part.suffices_to_explain:
            assert explain(part.plan, name, source="") == explain(plan, name, source="")
            explained.add(name)
    return explained


@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_excerpts_of_every_action_are_those_of_the_plan(tmp_path, suffix):
    told_alike(EVERY_ACTION, tmp_path / f"plan.{suffix}")


def test_jobs_with_places_are_explained_without_the_others(tmp_path):
    plan = small_plan()

    explained = told_alike(plan, tmp_path / "plan.json")

    assert explained == {placement.job for placement in plan.placements}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["quickstart", "deadline-against-price", "elastic-resize", "starving-gang", "hot-gpu", "mig-repack"],
)
def test_excerpts_of_scenarios_are_those_of_their_plans(tmp_path, name):
    plan = of_scenario(name)

    explained = told_alike(plan, tmp_path / "plan.json")

    waits = {each.job for each in plan.waiting}
    assert not explained & waits


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_excerpts_of_a_synthetic_cluster_are_those_of_its_plan(tmp_path, seed):
    snapshot = generate_snapshot(profile_of(SIZES["S"]), seed=seed)
    plan = plan_epoch(snapshot, Policy(solvers=()), seed=0, created_at=NOW)

    explained = told_alike(plan, tmp_path / "plan.json")

    changed = {each.type for each in plan.actions if isinstance(each, JobAction) and each.job in explained}
    assert {"keep", "start"} <= changed


def test_a_start_is_not_explained_alone_while_a_job_may_starve(tmp_path):
    plan = of_scenario("starving-gang")
    started = next(each.job for each in plan.actions if isinstance(each, Start))
    path = tmp_path / "plan.json"
    save_plan(plan, path)

    assert not read_excerpt(path, started).suffices_to_explain


def test_the_entries_of_no_other_job_are_read(tmp_path):
    plan = small_plan()
    path = tmp_path / "plan.json"
    save_plan(plan, path)

    part = read_excerpt(path, "infer-a").plan

    assert [job.name for job in part.snapshot.jobs] == ["infer-a"]
    assert [node.name for node in part.snapshot.cluster.nodes] == ["h100-02"]
    assert [action.job for action in part.actions] == ["infer-a"]


def test_a_changed_file_has_no_excerpt(tmp_path):
    path = tmp_path / "plan.json"
    save_plan(small_plan(), path)
    text = path.read_bytes()

    path.write_bytes(text.replace(b'"index": 4', b'"index": 5'))
    changed = read_excerpt(path, "infer-a")
    path.write_bytes(text)

    assert changed is None
    assert read_excerpt(path, "infer-a") is not None
    assert read_excerpt(path, "missing") is None
    hash_path(path).unlink()
    assert read_excerpt(path, "infer-a") is None


def test_a_small_plan_has_no_hash_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(plan_file, "MANY_ACTIONS", 1_000)

    save_plan(small_plan(), tmp_path / "plan.json")

    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]
