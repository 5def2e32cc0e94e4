"""A damaged world is planned, not refused: every loss is named, and the rest is planned as if it waited."""

import json
from collections import Counter

import pytest

from gpuplan.models.cluster import Gpu
from gpuplan.models.errors import BadInputError, PlannerError, StalePlanError
from gpuplan.models.plan.actions import Grow, JobAction, Keep, Preempt, Release, Start, Wait
from gpuplan.models.policy.policy import Drift, Policy
from gpuplan.models.validation.base import FindingOutcome
from gpuplan.models.validation.damage import survey_damage
from gpuplan.models.verifier.rules.disruption import unnamed_damage
from gpuplan.models.verifier.verify import verify_target
from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.apply.outcome import ApplyHooks
from gpuplan.planner.apply.standing import actions_done_in, verify_remaining
from gpuplan.planner.apply.verdict import verdict_on
from gpuplan.planner.diff.drift import drift
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.plan_file.integrity import contradictions
from gpuplan.planner.plan_file.plan_file import load_plan, save_plan
from gpuplan.planner.render.plan.text import plan_text
from gpuplan.planner.render.reports.plan import plan_report
from gpuplan.planner.render.style import Style
from gpuplan.planner.sources.files import inspect_snapshot, load_snapshot, snapshot_text
from tests.support.builders.build import NOW, by_value, cluster, job, node, replica, snapshot
from tests.support.output.golden import figures
from tests.support.seeds import EVERY_SEED
from tests.support.strategies import instances
from tests.support.strategies.damaged_worlds import damaged

WORLDS = 400 if EVERY_SEED else 8
GREEDY = by_value(solvers=())
SICK = node("n1", details=[Gpu(index=3, healthy=False)])


def planned(world, policy=GREEDY, **more):
    return plan_epoch(world, policy, seed=0, created_at=NOW, **more)


def outcomes(plan):
    return {each.subject: each.outcome for each in plan.findings}


def action_of(plan, name):
    (found,) = [one for one in plan.actions if isinstance(one, JobAction) and one.job == name]
    return found


def applied(plan, live, path):
    return apply_plan(plan, live, AuditLog(path), actor="ann@login1", now=lambda: NOW)


def random_world(number):
    """A random instance, damaged; without features that an instance of one instant has nothing of."""
    instance = instances.everything(number) if number % 2 else instances.everything_mixed(number)
    return damaged(instance.snapshot, number), instance.policy.model_copy(update={"solvers": ()})


@pytest.mark.slow
@pytest.mark.parametrize("number", range(WORLDS))
def test_a_random_damaged_world_is_planned_and_every_loss_is_named(number, tmp_path):
    world, policy = random_world(number)
    path = tmp_path / "world.json"
    path.write_text(snapshot_text(world.found), encoding="utf-8")
    found = load_snapshot(str(path))

    plan = planned(found, policy)

    assert found == world.found
    assert {each.job for each in plan.findings if each.job} == world.lost
    assert list(contradictions(plan)) == []
    assert verify_target(plan.snapshot, policy, plan.target).violations == ()
    assert list(unnamed_damage(found, plan.snapshot, world.lost)) == []
    assert plan.snapshot == world.pending
    for name in world.lost:
        assert action_of(plan, name)
    if world.lost:
        with pytest.raises(BadInputError):
            load_snapshot(str(path), strict=True)
    alone = planned(world.pending, policy)
    assert (plan.solution.objective, plan.placements) == (alone.solution.objective, alone.placements)

    with SimulatedCluster.create(tmp_path / "live.db", found) as live:
        if plan.has_changes:
            applied(plan, live, tmp_path / "audit.jsonl")
        after = live.snapshot()
    assert not any(loss.released for loss in survey_damage(after).losses.values())
    assert verify_remaining(plan, after, actions_done_in(plan, after)).violations == ()


@pytest.mark.slow
def test_random_worlds_lose_places_in_every_way():
    worlds = [random_world(number)[0] for number in range(150)]

    losses = [loss for world in worlds for loss in survey_damage(world.found).losses.values()]
    kinds = Counter(damage.kind.value for loss in losses for damage in loss.damages)

    assert sum(bool(world.lost) for world in worlds) >= 50
    assert min(kinds[kind] for kind in ("NodeGone", "NodeDown", "GpuGone", "GpuUnhealthy")) >= 3, kinds
    assert sum(loss.released and loss.after is not None for loss in losses) >= 4
    assert sum(not loss.released for loss in losses) >= 1
    assert sum(len(world.lost) > 1 for world in worlds) >= 20


def test_a_gang_that_lost_a_node_starts_again_as_a_whole():
    gang = job("gang", gpus=4, replicas=2, at=[replica("n0", gpus=range(4)), replica("gone", gpus=range(4))])

    plan = planned(snapshot(nodes=cluster(1), jobs=[gang]))

    assert outcomes(plan) == {"job gang": FindingOutcome.RESTARTED}
    assert [type(one) for one in plan.actions] == [Release, Start]
    assert plan.actions[1].after_actions == ("release/gang",)
    assert plan.solution.terms.keys() == {"completion"}


def test_a_gang_without_room_waits_and_stops_no_job():
    gang = job("gang", gpus=8, replicas=2, priority=0, at=[replica("n0", gpus=range(8)), replica("gone")])
    other = job("other", gpus=8, at=[replica("n1", gpus=range(8))])

    plan = planned(snapshot(jobs=[gang, other]))

    assert outcomes(plan) == {"job gang": FindingOutcome.WAITING}
    assert isinstance(action_of(plan, "gang"), Wait)
    assert isinstance(action_of(plan, "other"), Keep)
    assert not any(isinstance(one, Preempt) for one in plan.actions)


def test_others_may_take_what_a_damaged_gang_gives_up():
    gang = job("gang", gpus=8, replicas=3, at=[replica("n0", gpus=range(8)), replica("gone")])
    waits = job("waits", gpus=8)

    plan = planned(snapshot(nodes=cluster(1), jobs=[gang, waits]))

    assert action_of(plan, "waits").after_actions == ("release/gang",)
    assert {placed.job for placed in plan.placements} == {"waits"}


def test_an_elastic_gang_goes_on_with_what_is_left_and_grows_where_it_may():
    held = [replica("n0", gpus=[0]), replica("gone", gpus=[0])]
    gang = job("gang", gpus=1, replicas=(1, 2), at=held)
    world = snapshot(nodes=[node("n0", gpus=1), node("n1", gpus=1)], jobs=[gang])

    grown = planned(world, Policy(solvers=(), prices={"disruption": 0}))
    kept = planned(world, Policy(solvers=(), disruption={"resize": False}))

    assert outcomes(grown) == {"job gang": FindingOutcome.COMPLETED}
    assert isinstance(action_of(grown, "gang"), Grow)
    assert outcomes(kept) == {"job gang": FindingOutcome.CONTINUED}
    assert action_of(kept, "gang").before.replicas == (held[0],)


def test_a_job_that_may_not_be_interrupted_is_named_and_left_on_its_unhealthy_gpu():
    serve = job("serve", gpus=1, at=[replica("n1", gpus=[3])], preemptible=False)

    plan = planned(snapshot(nodes=[node("n0"), SICK], jobs=[serve]))

    assert outcomes(plan) == {"job serve": FindingOutcome.LEFT}
    assert isinstance(action_of(plan, "serve"), Keep)
    assert not plan.has_changes


def test_lost_work_is_told_and_is_no_cost_of_the_plan():
    lost = job("lost", gpus=2, at=[replica("gone", gpus=[0, 1])])

    plan = planned(snapshot(jobs=[lost]))

    (release,) = [one for one in plan.actions if isinstance(one, Release)]
    assert release.reason.numbers == {"unsaved_gpu_hours": 2.0}
    assert figures(release.reason.text) == "2"
    assert "node gone" in release.reason.text
    assert plan.solution.terms.keys() == {"completion"}
    assert plan.metrics.jobs.preempted == 0


def test_a_failure_is_no_preemption_of_the_job(tmp_path):
    world = snapshot(nodes=cluster(1), jobs=[job("lost", gpus=1, at=[replica("gone", gpus=[0])])])
    plan = planned(world)

    with SimulatedCluster.create(tmp_path / "live.db", world) as live:
        done = applied(plan, live, tmp_path / "audit.jsonl")
        (runs,) = live.snapshot().jobs

    assert done.done == ("release/lost", "start/lost")
    assert (runs.preemptions, runs.placement.nodes) == (0, {"n0"})


def test_a_plan_is_stale_where_the_place_holds_again_or_the_job_is_gone_from_it(tmp_path):
    lost = job("lost", gpus=1, at=[replica("n1", gpus=[0])])
    nodes = cluster(2)
    plan = planned(
        snapshot(nodes=nodes[:1], jobs=[lost, job("fill", gpus=8, at=[replica("n0", gpus=range(8))])])
    )
    others = plan.snapshot.job_by_name["fill"]

    def told(*jobs, on=nodes[:1]):
        live = snapshot(nodes=on, jobs=[*jobs, others])
        items = drift(plan, live, done=(), mode=Drift.PRECONDITIONS)
        return [(item.subject, item.change) for item in items]

    assert told(lost) == []
    assert told(lost, on=nodes) == [("job lost", "has all its places again")]
    assert told() == [("job lost", "is gone")]
    with (
        SimulatedCluster.create(tmp_path / "live.db", snapshot(nodes=nodes, jobs=[lost, others])) as live,
        pytest.raises(StalePlanError, match="job lost"),
    ):
        applied(plan, live, tmp_path / "audit.jsonl")


def test_a_cluster_that_has_released_jobs_by_itself_makes_no_plan_stale(tmp_path):
    lost = job("lost", gpus=1, at=[replica("gone", gpus=[0])])
    gang = job("gang", gpus=1, replicas=(1, 2), at=[replica("n0", gpus=[0]), replica("gone", gpus=[1])])
    plan = planned(snapshot(jobs=[lost, gang]))

    with SimulatedCluster.create(tmp_path / "live.db", plan.snapshot) as live:
        done = applied(plan, live, tmp_path / "audit.jsonl")

        assert done.done == tuple(one.id for one in plan.actions if not isinstance(one, Keep | Wait))
        assert {placed.job for placed in live.snapshot().running_placements} == {"gang", "lost"}


def test_an_interrupted_apply_of_releases_is_resumed(tmp_path):
    gang = job("gang", gpus=4, replicas=2, at=[replica("n0", gpus=range(4)), replica("gone", gpus=range(4))])
    world = snapshot(nodes=cluster(1), jobs=[gang, job("waits", gpus=1)])
    plan = planned(world)

    with SimulatedCluster.create(tmp_path / "live.db", world) as live:
        log = AuditLog(tmp_path / "log")
        asked = iter([False, True])
        with pytest.raises(Exception, match="applied in part"):
            apply_plan(
                plan, live, log, actor="a", now=lambda: NOW, hooks=ApplyHooks(stop=lambda: next(asked))
            )
        rest = apply_plan(plan, live, log, actor="a", now=lambda: NOW, resume=True)

    assert rest.skipped == ("release/gang",)
    assert rest.done == ("start/gang",)


def test_the_next_epoch_of_a_damaged_world_says_the_same_again():
    lost = job("lost", gpus=8, replicas=2, at=[replica("n0", gpus=range(8)), replica("gone")])
    world = snapshot(nodes=cluster(1), jobs=[lost])
    first = planned(world)

    again = planned(world, last=first)

    assert again.findings == first.findings
    assert again.actions == first.actions


def test_findings_are_saved_and_shown_above_the_actions(tmp_path):
    serve = job("serve", gpus=1, at=[replica("n1", gpus=[3])], preemptible=False)
    lost = job("lost", gpus=1, at=[replica("gone", gpus=[0])])
    plan = planned(snapshot(nodes=[node("n0"), SICK], jobs=[serve, lost]))
    save_plan(plan, tmp_path / "plan.json")

    text = plan_text(plan, Style(width=120), verbose=False)

    assert load_plan(str(tmp_path / "plan.json")) == plan
    document = json.loads((tmp_path / "plan.json").read_text())
    first, second = document["findings"]
    assert (first.pop("text"), first) == (
        plan.findings[0].text,
        {"job": "lost", "kinds": ["NodeGone"], "outcome": "restarted", "subject": "job lost"},
    )
    assert text.index("2 findings:") < text.index("+ start")
    page = plan_report(plan)
    assert "2 findings" in page
    assert second["text"] in page
    assert f"job serve  {second['text']};" in text
    assert "1 to release, 1 to start" in text


def test_many_findings_share_lines():
    jobs = [job(f"lost-{number}", gpus=1, at=[replica("gone", gpus=[number])]) for number in range(30)]
    plan = planned(snapshot(nodes=cluster(4), jobs=jobs))

    text = plan_text(plan, Style(width=80), verbose=False)

    assert "! restarted  30 jobs  NodeGone;" in text


def test_a_plan_without_damage_says_nothing_of_it():
    plan = planned(snapshot(jobs=[job("a", gpus=1)]))

    assert "findings" not in plan.document()


def test_damage_is_told_with_its_line_and_is_an_error_only_if_strict(tmp_path):
    path = tmp_path / "world.json"
    world = snapshot(jobs=[job("lost", gpus=1, at=[replica("gone", gpus=[0])])])
    path.write_text(snapshot_text(world), encoding="utf-8")

    found, damages = inspect_snapshot(str(path))

    assert found.jobs[0].running
    assert [figures(each.message) for each in damages] == ["lost gone"]
    with pytest.raises(BadInputError) as refused:
        load_snapshot(str(path), strict=True)
    assert refused.value.problems == damages


def test_contradictions_are_errors_in_a_damaged_world_too(tmp_path):
    path = tmp_path / "world.json"
    jobs = [job(name, gpus=1, at=[replica("gone", gpus=[0])]) for name in ("a", "b")]
    path.write_text(snapshot_text(snapshot(jobs=jobs)), encoding="utf-8")

    with pytest.raises(BadInputError) as refused:
        load_snapshot(str(path))

    (problem,) = refused.value.problems
    assert figures(problem.message).startswith("b 0 gone 2 ")


def test_a_gpu_of_the_simulated_cluster_fails_and_its_job_is_placed_anew(tmp_path):
    world = snapshot(nodes=cluster(1), jobs=[job("a", gpus=1, at=[replica("n0", gpus=[3])])])

    with SimulatedCluster.create(tmp_path / "live.db", world) as live:
        assert live.fail_gpu("n0", 3) == ("a",)
        plan = planned(live.snapshot())
        applied(plan, live, tmp_path / "audit.jsonl")
        (held,) = live.snapshot().jobs[0].running.replicas[0].gpus
        live.repair_gpu("n0", 3)
        (repaired,) = live.snapshot().cluster.nodes
        for deed, index, why in ((live.repair_gpu, 3, "healthy already"), (live.fail_gpu, 8, "no GPU 8")):
            with pytest.raises(PlannerError, match=why):
                deed("n0", index)

    assert outcomes(plan) == {"job a": FindingOutcome.RESTARTED}
    assert held.index != 3
    assert repaired.gpus.by_index[3].healthy


def test_a_plan_that_only_releases_is_verified_before_and_after(tmp_path):
    world = snapshot(nodes=[SICK], jobs=[job("a", gpus=8, at=[replica("n1", gpus=range(8))])])
    plan = planned(world)
    with SimulatedCluster.create(tmp_path / "cluster.db", world) as live:
        assert verdict_on(plan, live.snapshot()).verified
        applied(plan, live, tmp_path / "audit.jsonl")

        assert verdict_on(plan, live.snapshot()).verified
        assert [each.type for each in plan.actions] == ["release", "wait"]
