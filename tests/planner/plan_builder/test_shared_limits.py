"""Steps wait for those that freed what they take of a quota, a power cap, a domain or a pool, no others."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from gpuplan.models.affinity import AntiAffinity
from gpuplan.models.cluster import Level, RackPower
from gpuplan.models.plan.actions import changes_of
from gpuplan.models.policy.policy import Policy
from gpuplan.models.queue import Queue, Quota
from gpuplan.models.validation.damage import survey_damage
from gpuplan.models.verifier.context import Context
from gpuplan.models.verifier.later_slots import INSTANT_RULES
from gpuplan.planner.plan_builder import shared_limits
from gpuplan.planner.plan_builder.draft import draft
from tests.planner.plan_builder.test_step_order import steps
from tests.support.builders.build import NOW, cluster, job, node, placement, pool, queue, replica, snapshot
from tests.support.builders.solution_builders import drafted, solution
from tests.support.seeds import examples
from tests.support.strategies.instances import quotas_of_cores, with_cores

MODELS = ("A100-80GB", "H100-80GB")


def on(name, *gpus):
    return replica(name, gpus=gpus)


def test_a_start_on_another_node_waits_for_as_much_quota_as_it_takes():
    """The queue has 6 of 8 GPUs in use; 2 more are free at once, and each victim frees 2."""
    running = [job(f"v{index}", gpus=2, at=[on("n0", 2 * index, 2 * index + 1)]) for index in range(3)]
    waiting = [job(name, gpus=2) for name in ("a", "b", "c")]
    world = snapshot(jobs=[*running, *waiting], queues=[queue(nominal=8)])

    found = steps(
        world,
        *(placement(name, on("n1", 2 * index, 2 * index + 1)) for index, name in enumerate("abc")),
        stopped=["v0", "v1"],
    )

    waits = sorted(found[f"start/{name}"] for name in "abc")
    assert waits == [(), ("preempt/v0",), ("preempt/v1",)]


def test_quota_that_is_freed_where_the_job_starts_is_waited_for_once():
    running = [job("v0", gpus=4, at=[on("n0", 0, 1, 2, 3)]), job("v1", gpus=4, at=[on("n1", 0, 1, 2, 3)])]
    world = snapshot(nodes=cluster(gpus=4), jobs=[*running, job("a", gpus=4)], queues=[queue(nominal=8)])

    found = steps(world, placement("a", on("n1", 0, 1, 2, 3)), stopped=["v0", "v1"])

    assert found["start/a"] == ("preempt/v1",)


def test_nothing_waits_for_quota_of_which_there_is_enough():
    running = [job("v", gpus=2, at=[on("n0", 0, 1)])]
    world = snapshot(jobs=[*running, job("a", gpus=2)], queues=[queue(nominal=4)])

    assert steps(world, placement("a", on("n1", 0, 1)), stopped=["v"])["start/a"] == ()


def test_a_start_waits_until_a_queue_above_its_limit_is_below_it():
    """Ten GPUs of a quota of eight are in use: both victims must stop before one of two GPUs starts."""
    running = [job(f"v{index}", gpus=2, at=[on("n0", 2 * index, 2 * index + 1)]) for index in range(4)]
    running.append(job("w", gpus=2, at=[on("n1", 0, 1)]))
    world = snapshot(jobs=[*running, job("a", gpus=2)], queues=[queue(nominal=8)])

    found = steps(world, placement("a", on("n1", 4, 5)), stopped=["v0", "v1"])

    assert found["start/a"] == ("preempt/v0", "preempt/v1")


def test_quota_of_a_cohort_is_waited_for_across_queues():
    queues = [queue("root"), queue("a", parent="root", nominal=4), queue("b", parent="root", nominal=4)]
    running = [job("v", gpus=6, queue="b", at=[on("n0", *range(6))])]
    world = snapshot(jobs=[*running, job("s", gpus=4, queue="a")], queues=queues)

    assert steps(world, placement("s", on("n1", 0, 1, 2, 3)), stopped=["v"])["start/s"] == ("preempt/v",)


def test_quota_that_a_queue_does_not_lend_needs_no_room_above_it():
    """Queue a keeps 4 GPUs for itself, so its job does not wait for the one of b, which borrows."""
    queues = [
        queue("root"),
        queue("a", parent="root", nominal=4, lending=0),
        queue("b", parent="root", nominal=4),
    ]
    running = [job("v", gpus=4, queue="b", at=[on("n0", 0, 1, 2, 3)])]
    waiting = [job("s", gpus=4, queue="a"), job("t", gpus=4, queue="b")]
    world = snapshot(jobs=[*running, *waiting], queues=queues)

    found = steps(
        world, placement("s", on("n1", 0, 1, 2, 3)), placement("t", on("n1", 4, 5, 6, 7)), stopped=["v"]
    )

    assert found["start/s"] == ()
    assert found["start/t"] == ("preempt/v",)


def test_a_start_waits_for_the_power_of_its_rack():
    nodes = cluster(watts=700, rack="r0")
    running = [job("v", gpus=4, at=[on("n0", 0, 1, 2, 3)])]
    world = snapshot(
        nodes=nodes, jobs=[*running, job("a", gpus=4)], rack_power=(RackPower(rack="r0", watts=3_000),)
    )

    assert steps(world, placement("a", on("n1", 0, 1, 2, 3)), stopped=["v"])["start/a"] == ("preempt/v",)


def test_a_start_waits_for_the_power_of_its_node():
    running = [job("v", gpus=4, at=[on("n0", 0, 1, 2, 3)])]
    world = snapshot(nodes=[node(watts=700, power_cap_watts=3_000)], jobs=[*running, job("a", gpus=4)])

    assert steps(world, placement("a", on("n0", 4, 5, 6, 7)), stopped=["v"])["start/a"] == ("preempt/v",)


AVOIDS = (AntiAffinity(labels={"app": "db"}, level=Level.RACK),)


@pytest.mark.parametrize(("labels", "avoiding"), [({"app": "db"}, "a"), ({"app": "db"}, "v")])
def test_a_start_waits_until_a_job_to_keep_away_from_has_left_its_domain(labels, avoiding):
    about = {"a": {"labels": labels}, "v": {"labels": labels}}
    about[avoiding] = {"anti_affinity": AVOIDS}
    running = [
        job("v", gpus=1, at=[on("n0", 0)], **about["v"]),
        job("w", gpus=1, at=[on("n0", 1)], labels={"app": "web"}),
    ]
    world = snapshot(nodes=cluster(rack="r0"), jobs=[*running, job("a", gpus=1, **about["a"])])

    found = steps(world, placement("a", on("n1", 0)), stopped=["v", "w"])

    assert found["start/a"] == ("preempt/v",)


def test_a_new_node_of_a_full_pool_waits_for_a_removal():
    full = pool("cloud", template=node("cloud", pool="cloud"), most=1)
    new = full.template.model_copy(update={"name": "cloud-1"})
    world = snapshot(nodes=[node(), node("old", pool="cloud")], jobs=[job("a", gpus=8)], pools=(full,))

    found = steps(world, placement("a", on("cloud-1", *range(8))), added=[new], removed=["old"])

    assert found["scale_up/cloud-1"] == ("scale_down/old",)


def test_a_start_waits_for_a_release_that_gives_up_its_quota():
    lost = job("l", gpus=4, at=[on("n0", *range(4))])
    nodes = [node("n0", gpus=4, ready=False), *cluster(3)[1:]]
    queues = [queue(nominal=4)]
    world = snapshot(nodes=nodes, jobs=[lost, job("a", gpus=4)], queues=queues)
    damage = survey_damage(world)
    answer = solution(damage.sound, placement("a", on("n1", *range(4))))

    plan = draft(damage.sound, Policy(), answer, {}, seed=0, created_at=NOW, damage=damage)

    start = next(each for each in plan.actions if each.id == "start/a")
    assert start.after_actions == ("release/l",)


def test_two_jobs_that_wait_for_each_other_s_quota_move_all_the_same():
    nodes = [node("h", gpus=2), node("a", gpus=2, model=MODELS[0])]
    jobs = [job("x", gpus=1, at=[on("h", 0)]), job("y", gpus=1, at=[on("a", 0)])]
    full = Queue(name="q", gpu_models={model: Quota(nominal=1) for model in MODELS})
    world = snapshot(nodes=nodes, jobs=jobs, queues=[full])

    found = steps(world, placement("x", on("a", 1)), placement("y", on("h", 1)))

    assert found == {"migrate/x": (), "migrate/y": ("migrate/x",)}


def test_moves_are_in_an_order_in_which_quotas_hold():
    nodes = [node("h", gpus=4), node("a", gpus=4, model=MODELS[0])]
    jobs = [job("x", gpus=1, at=[on("h", 0)]), job("y", gpus=1, at=[on("a", 0)])]
    models = {MODELS[0]: Quota(nominal=1), MODELS[1]: Quota(nominal=2)}
    world = snapshot(nodes=nodes, jobs=jobs, queues=[Queue(name="q", gpu_models=models)])

    found = steps(world, placement("x", on("a", 1)), placement("y", on("h", 1)))

    assert list(found.items()) == [("migrate/y", ()), ("migrate/x", ("migrate/y",))]


# --- random plans with their steps in any order that these allow -------------------------------------------


def broken(world, placements):
    """Rules about a state that these placements break."""
    case = Context(world, Policy(), tuple(placements))
    return [violation for rule in INSTANT_RULES.values() for violation in rule(case)]


def crowded(draw):
    """Two racks with a power cap, two GPU models, queues with little room, and jobs that avoid others."""
    nodes = [
        node(f"n{index}", gpus=4, model=draw.choice(MODELS), watts=500, rack=f"r{index % 2}")
        for index in range(6)
    ]
    queues = [
        Queue(name="root", quota=Quota(nominal=draw.choice((0, 2, 4)))),
        *(
            Queue(
                name=name,
                parent="root",
                quota=Quota(
                    nominal=draw.choice((2, 4, 6)),
                    borrowing_limit=draw.choice((None, 2)),
                    lending_limit=draw.choice((None, 0, 2)),
                ),
                gpu_models={MODELS[0]: Quota(nominal=draw.choice((2, 4)))} if draw.random() < 0.5 else {},
            )
            for name in ("q0", "q1", "q2")
        ),
    ]
    caps = tuple(RackPower(rack=f"r{index}", watts=draw.choice((3_000, 4_000, 9_000))) for index in range(2))
    world = snapshot(nodes=nodes, jobs=(), queues=queues, rack_power=caps)
    jobs = [some_job(draw, f"j{index:02d}") for index in range(24)]
    placed = {}
    for each in jobs:
        given = world.model_copy(update={"jobs": (*world.jobs, each)})
        one = somewhere(draw, each, placed)
        if draw.random() < 0.8 and one and not broken(given, [*placed.values(), one]):
            placed[each.name] = one
        world = given
    jobs = [
        job(each.name, gpus=each.request.gpus, at=placed[each.name].replicas, **kind(each))
        if each.name in placed
        else each
        for each in jobs
    ]
    return world.model_copy(update={"jobs": tuple(jobs)}).canonical()


def kind(each):
    return {"queue": each.queue, "labels": each.labels, "anti_affinity": each.anti_affinity}


def some_job(draw, name):
    labels = {"app": "db"} if draw.random() < 0.2 else {}
    avoids = AVOIDS if draw.random() < 0.2 else ()
    queue_name = f"q{draw.randrange(3)}"
    return job(name, gpus=draw.randint(1, 2), queue=queue_name, labels=labels, anti_affinity=avoids)


def somewhere(draw, one, placed):
    """The job on free GPUs of a random node; None if there are too few."""
    name = f"n{draw.randrange(6)}"
    used = {
        held.index
        for each in placed.values()
        for there in each.replicas
        if there.node == name
        for held in there.gpus
    }
    free = [index for index in range(4) if index not in used]
    return placement(one.name, on(name, *free[: one.request.gpus])) if len(free) >= one.request.gpus else None


def walk(draw, world):
    """Jobs stop, then move one after the other, then start: each step breaks no rule."""
    placed = {each.job: each for each in world.running_placements}
    for name in sorted(placed):
        if draw.random() < 0.35:
            del placed[name]
    for name in draw.sample(sorted(placed), len(placed)):
        if draw.random() < 0.5 and (one := somewhere(draw, world.job_by_name[name], placed)):
            new = placed | {name: one}
            placed = placed if broken(world, new.values()) else new
    for each in (each for each in world.jobs if each.running is None):
        for _ in range(3):
            one = None if each.name in placed else somewhere(draw, each, placed)
            if one and not broken(world, [*placed.values(), one]):
                placed[each.name] = one
    return placed


def first_broken(world, plan, draw):
    """What breaks first if the steps are done in a random order that they allow; nothing if all goes well."""
    placed = {each.job: each for each in world.running_placements}
    left = changes_of(plan.actions)
    done = set()
    while left:
        ready = [step for step in left if done.issuperset(step.after_actions)]
        step = draw.choice(ready)
        left.remove(step)
        done.add(step.id)
        placed = {name: each for name, each in (placed | {step.job: step.after}).items() if each}
        if found := broken(world, placed.values()):
            return found
    return []


def rules_broken(seeds, orders=4):
    """How often each rule broke over random worlds, and what there was to see."""
    found, seen = Counter(), Counter()
    for seed in seeds:
        draw = random.Random(seed)
        world = crowded(draw)
        goal = walk(draw, world)
        if seed % 2:  # the same with quotas of CPU cores, a core for each GPU
            world, goal = quotas_of_cores(world), {name: with_cores(each) for name, each in goal.items()}
        plan = drafted(world, *goal.values(), stopped={e.job for e in world.running_placements} - goal.keys())
        seen += Counter(step.type for step in changes_of(plan.actions))
        seen["waits"] += sum(len(step.after_actions) for step in changes_of(plan.actions))
        for _ in range(orders):
            found.update({str(each.rule) for each in first_broken(world, plan, draw)})
    return found, seen


@pytest.mark.slow
def test_every_rule_holds_in_whatever_order_the_steps_are_done():
    found, seen = rules_broken(range(examples(120)))

    assert found == {}
    assert min(seen[kind] for kind in ("start", "preempt", "migrate")) > 100
    assert seen["waits"] > 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "rule"),
    [
        ("_quota_trees", "quota"),
        ("_caps_by_node", "power"),
        ("JobDistances.change", "anti_affinity"),
    ],
)
def test_without_one_of_the_limits_a_rule_breaks(part, rule, monkeypatch):
    nothing = {"_quota_trees": (), "_caps_by_node": {}, "JobDistances.change": []}[part]
    owner, _, name = part.rpartition(".")
    monkeypatch.setattr(getattr(shared_limits, owner) if owner else shared_limits, name, lambda *_: nothing)

    assert any(rules_broken([seed])[0][rule] for seed in range(60))
