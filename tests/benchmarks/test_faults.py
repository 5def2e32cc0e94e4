"""The fault campaign: a slice of it comes to a good end, and the checker finds every planted defect."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from benchmarks.faults import campaign, checker, kinds
from benchmarks.faults.campaign import Run, one_run, runs_of, tables
from benchmarks.faults.checker import Held, Submitted, TrueJob, Truth
from benchmarks.faults.local import LocalWorld
from benchmarks.faults.simulated import SimulatedWorld


def judged(world_of, folder, kind, seed, sabotage="", command="apply"):
    """One run, and the kinds of what is wrong afterwards."""
    draw = random.Random(f"faults {seed}")
    world = world_of(folder, draw)
    run = Run(world.executor, kind, seed, command)
    try:
        one_run(world, run, draw, sabotage)
    finally:
        world.close()
    return run, {finding.kind for finding in run.findings}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in kinds.KINDS if kind != kinds.FULL])
def test_a_simulated_cluster_comes_through_each_kind_of_fault(tmp_path, kind):
    _, found = judged(SimulatedWorld, tmp_path, kind, 1)
    assert found == set()


@pytest.mark.slow
def test_a_killed_run_goes_on(tmp_path):
    _, found = judged(SimulatedWorld, tmp_path, kinds.KILLED, 1, command="run")
    assert found == set()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kinds.KILLED, kinds.NODE_LOST])
def test_a_host_comes_through_faults(tmp_path, kind):
    _, found = judged(LocalWorld, tmp_path, kind, 2)
    assert found == set()


PLANTED = {
    "starts twice": checker.DOUBLED,
    "loses a job": checker.LOST,
    "drops a replica": checker.PART,
    "gives GPUs twice": checker.TWICE,
    "says done": checker.WRONG,
    "says nothing": checker.MISSING,
    "leaves a draft": checker.LEFT,
    "breaks": checker.DEFECT,
}


@pytest.mark.slow
@pytest.mark.parametrize("sabotage", PLANTED)
def test_a_planted_defect_is_found(tmp_path, sabotage):
    run, found = judged(SimulatedWorld, tmp_path, kinds.CLOCK, 1, sabotage)
    assert PLANTED[sabotage] in found, run.findings


@pytest.mark.slow
def test_a_host_that_starts_a_job_twice_is_found_by_the_job_itself(tmp_path):
    run, found = judged(LocalWorld, tmp_path, kinds.CLOCK, 2, "supervises twice")
    assert {checker.DOUBLED, checker.TWICE} <= found, run.findings


def truth(**jobs):
    return Truth(jobs, frozenset())


def found(submitted, **jobs):
    return {finding.kind for finding in checker.structure(Submitted(submitted), truth(**jobs))}


GPU = Held("n0", (("0", 1000),))


def test_what_holds_at_any_time_is_judged_by_what_the_cluster_has():
    runs = TrueJob("runs", (GPU,))
    assert found({"a": (1, 1)}, a=runs) == set()
    assert found({"a": (1, 1), "b": (1, 1)}, a=runs) == {checker.LOST}
    assert found({"a": (1, 1), "b": (1, 1)}, a=runs, b=runs) == {checker.TWICE}
    assert found({"a": (2, 2)}, a=runs) == {checker.PART}
    assert found({"a": (1, 1)}, a=TrueJob("waits", (GPU,))) == {checker.TWICE}
    sliced = TrueJob("runs", (Held("n0", (), (("0", "1g.10gb@0"),)),))
    assert found({"a": (1, 1), "b": (1, 1)}, a=sliced, b=sliced) == {checker.TWICE}
    assert found({"a": (1, 1), "b": (1, 1)}, a=sliced, b=runs) == {checker.TWICE}


@pytest.mark.slow
def test_the_chain_of_an_audit_log_is_computed_anew(tmp_path):
    world = SimulatedWorld(tmp_path, random.Random(3))
    plan = world.populate()
    world.surely(*world.apply_words(plan, resume=False))
    assert list(checker.audited(world.audit, world.truth())) == []

    lines = world.audit.read_text().splitlines()
    world.audit.write_text("\n".join([*lines[:1], *lines[2:]]) + "\n")
    assert checker.MISSING in {each.kind for each in checker.audited(world.audit, world.truth())}
    record = json.loads(lines[-1]) | {"detail": "complete: 0 of 0 done"}
    world.audit.write_text("\n".join([*lines[:-1], json.dumps(record)]) + "\n")
    assert {each.kind for each in checker.audited(world.audit, world.truth())} == {checker.WRONG}


def test_a_command_says_no_more_than_it_may():
    assert not list(checker.told(22, "applied in part"))
    assert {each.kind for each in checker.told(3, "")} == {checker.DEFECT}
    assert {each.kind for each in checker.told(1, "a defect of gpuplan: KeyError")} == {checker.DEFECT}


def test_each_kind_of_fault_is_drawn_as_often_as_the_others_on_each_executor():
    runs = runs_of(1000, campaign.EXECUTORS, 0)
    by_executor = Counter(run.executor for run in runs)
    assert by_executor == {"simulated": 800, "local": 150, "slurm": 50}
    assert set(Counter(run.kind for run in runs if run.executor == "simulated").values()) == {100}
    assert len({(run.executor, run.seed) for run in runs}) == 1000


def test_the_table_counts_what_struck_and_names_each_bad_end():
    good = Run("local", kinds.KILLED, 1, struck=1, tries=1, recovery=2.0)
    never = Run("local", kinds.KILLED, 2)
    bad = Run("local", kinds.KILLED, 3, struck=1, tries=2, recovery=4.0)
    bad.findings.append(checker.Finding(checker.LOST, "job a"))
    text = tables([run.record() for run in (good, never, bad)])
    assert "| local | killed (-9) | 3 | 2 | 1 | 0 | 1 | 1 | 0 | 3.00 s | 4.00 s |" in text
    assert "- local, killed (-9), seed 3, apply: job lost: job a" in text
