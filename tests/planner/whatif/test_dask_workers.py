"""The same tasks on a Dask cluster of this machine, bound to loopback."""

from __future__ import annotations

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.models.policy.policy import BudgetMode, BudgetPolicy, Policy
from gpuplan.planner.cli import main
from gpuplan.planner.whatif.compare import compare
from gpuplan.planner.whatif.patch.scenario import Scenario, apply_scenario
from gpuplan.planner.whatif.runner import Processes, WorkerTask
from tests.support.builders.build import job, snapshot

distributed = pytest.importorskip("distributed", reason="the extra `dask` is not installed")
dask_engine = pytest.importorskip("gpuplan.planner.whatif.dask_workers")

POLICY = Policy(budget=BudgetPolicy(mode=BudgetMode.DETERMINISTIC))
ON_LOOPBACK = {
    "host": "127.0.0.1",
    "dashboard_address": "127.0.0.1:0",
    "worker_dashboard_address": "127.0.0.1:0",
    "scheduler_kwargs": {"dashboard": False},
}


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, **ON_LOOPBACK) as made:
        yield made


@pytest.mark.slow
def test_a_comparison_comes_out_as_on_this_machine(cluster):
    world = snapshot(jobs=[job("a", gpus=1), job("b", gpus=8, replicas=2)])
    more = Scenario.model_validate({"name": "m", "changes": [{"change": "add_nodes", "like": "n0"}]})
    loaded = [(more, apply_scenario(world, POLICY, more))]

    with dask_engine.dask_cluster(cluster.scheduler_address) as engine:
        there = compare(world, POLICY, loaded, engine, seed=0)
    here = compare(world, POLICY, loaded, Processes(1), seed=0)

    assert [each.figures.plan_id for each in (there.base, *there.scenarios)] == [
        each.figures.plan_id for each in (here.base, *here.scenarios)
    ]
    assert there.scenarios[0].differences == here.scenarios[0].differences


@pytest.mark.slow
def test_a_task_that_dies_takes_neither_the_worker_nor_the_others_with_it(cluster):
    tasks = [
        WorkerTask("tests.support.doubles.task_engines:die", (), 30.0),
        WorkerTask("tests.support.doubles.task_engines:echo", ("done",), 30.0),
    ]

    with dask_engine.dask_cluster(cluster.scheduler_address) as engine:
        found = dict(engine.run(tasks))

    assert "code 3" in found[0].failure
    assert found[1].last == "done"
    assert len(cluster.workers) == 1


@pytest.mark.slow
def test_a_task_that_cannot_be_begun_is_a_failure(cluster, monkeypatch):
    def refuse(_task):
        raise OSError("no space left")

    monkeypatch.setattr(dask_engine, "run_task", refuse)

    with dask_engine.dask_cluster(cluster.scheduler_address) as engine:
        [(_, outcome)] = engine.run([WorkerTask("tests.support.doubles.task_engines:echo", ("x",), 1.0)])

    assert outcome.failure == "failed on its Dask worker: OSError: no space left"


@pytest.mark.slow
def test_a_scheduler_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setattr(dask_engine, "_PATIENCE", 1)

    with (
        pytest.raises(PlannerError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1"),
        dask_engine.dask_cluster("tcp://127.0.0.1:1"),
    ):
        pass


@pytest.mark.slow
def test_a_scheduler_without_workers_is_told(monkeypatch):
    monkeypatch.setattr(dask_engine, "_PATIENCE", 1)

    with (
        distributed.LocalCluster(n_workers=0, **ON_LOOPBACK) as empty,
        pytest.raises(PlannerError, match="has no workers"),
        dask_engine.dask_cluster(empty.scheduler_address),
    ):
        pass


@pytest.mark.slow
def test_the_command_line_plans_on_the_cluster(cluster, monkeypatch, capsys, tmp_path):
    scenario = tmp_path / "s.yaml"
    scenario.write_text("name: none\n")
    monkeypatch.setattr(
        "sys.argv",
        [
            *("gpuplan", "whatif", "scenarios/quickstart", str(scenario), "--engine", "dask"),
            *("--scheduler", cluster.scheduler_address),
        ],
    )

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 0
    assert "objective           10,482" in capsys.readouterr().out
