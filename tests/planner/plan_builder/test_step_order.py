"""An order of doing is found wherever there is one, and each step names what it had to wait for."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from gpuplan.models.cluster import MigInstance
from gpuplan.models.eligibility.free_resources import free_resources_by_node
from gpuplan.models.errors import PlannerError
from gpuplan.models.mig import mig_geometry
from gpuplan.models.placement import GpuShare, MigSlice
from gpuplan.planner.analysis.job_changes import PlanChanges
from gpuplan.planner.apply.live_view import LiveView
from gpuplan.planner.plan_builder.step_order import order_steps
from tests.support.builders.build import job, node, placement, pool, replica, snapshot
from tests.support.builders.solution_builders import drafted, target


def steps(world, *placed, **more):
    """Ids of all steps with those each of them names as earlier."""
    changes = PlanChanges(world, target(world, *placed, **more))
    points = {change.job.name: 0 for change in changes.jobs}
    return {step.id: step.after for step in order_steps(changes, points)}


def whole(name, *gpus, on="n0", **more):
    """A job that runs on whole GPUs."""
    return job(name, gpus=len(gpus), at=[replica(on, gpus=gpus)], **more)


def test_what_is_stopped_or_shrunk_frees_before_anything_starts():
    shrinking = job("s", gpus=2, replicas=(1, 2), at=[replica(gpus=[0, 1]), replica(gpus=[2, 3])])
    world = snapshot(
        nodes=[node()], jobs=[shrinking, whole("v", 4, 5, 6, 7), job("a", gpus=4), job("b", gpus=2)]
    )

    found = steps(
        world,
        placement("s", replica(gpus=[0, 1])),
        placement("a", replica(gpus=range(4, 8))),
        placement("b", replica(gpus=[2, 3])),
        stopped=["v"],
    )

    assert found == {
        "shrink/s": (),
        "preempt/v": (),
        "start/a": ("preempt/v",),
        "start/b": ("shrink/s",),
    }


def test_a_job_moves_once_its_new_place_is_free():
    world = snapshot(nodes=[node(gpus=3)], jobs=[whole("a", 0), whole("b", 1)])

    found = steps(world, placement("a", replica(gpus=[1])), placement("b", replica(gpus=[2])))

    assert list(found.items()) == [("migrate/b", ()), ("migrate/a", ("migrate/b",))]


def test_what_a_job_leaves_itself_is_free_for_it():
    mover = job("a", gpus=1, replicas=2, at=[replica(gpus=[0]), replica(gpus=[1])])
    world = snapshot(nodes=[node(gpus=3)], jobs=[mover])

    assert steps(world, placement("a", replica(gpus=[1]), replica(gpus=[2]))) == {"migrate/a": ()}


def test_moves_that_wait_for_each_other_are_refused():
    world = snapshot(nodes=[node(gpus=2)], jobs=[whole("a", 0), whole("b", 1)])

    with pytest.raises(PlannerError, match=r"in any order and is withheld:\n  job a cannot move\n  job b"):
        steps(world, placement("a", replica(gpus=[1])), placement("b", replica(gpus=[0])))


def test_only_those_are_waited_for_that_make_the_difference():
    holders = [job(f"r{index}", cpus=10, at=[replica(cpus=10)]) for index in range(3)]
    sharers = [job(f"s{index}", milli=300, at=[replica(gpus=[index], milli=300)]) for index in range(2)]
    world = snapshot(
        nodes=[node(cpus=40)], jobs=[*holders, *sharers, job("a", milli=500, cpus=8), job("b", cpus=8)]
    )

    found = steps(
        world,
        placement("a", replica(gpus=[0], milli=500, cpus=8)),
        placement("b", replica(cpus=8)),
        stopped=["r0", "s0", "s1"],
    )

    # Ten CPUs are free, enough for one of the two; the share finds room beside s0.
    assert found["start/a"] == ()
    assert found["start/b"] == ("preempt/r0",)


def test_all_are_waited_for_that_freed_a_part():
    holders = [job(f"r{index}", cpus=20, at=[replica(cpus=20)]) for index in range(2)]
    world = snapshot(nodes=[node(cpus=40)], jobs=[*holders, job("a", cpus=40)])

    found = steps(world, placement("a", replica(cpus=40)), stopped=["r0", "r1"])

    assert found["start/a"] == ("preempt/r0", "preempt/r1")


def test_instances_are_created_once_those_in_their_way_are_idle():
    nodes = [node(gpus=1, mig={0: [("3g.40gb", 0), ("3g.40gb", 4)]})]
    users = [job(f"r{at}", mig={"3g.40gb": 1}, at=[replica(mig=[(0, "3g.40gb", at)])]) for at in (0, 4)]
    world = snapshot(nodes=nodes, jobs=[*users, job("a", mig={"1g.10gb": 1})])

    found = steps(world, placement("a", replica(mig=[(0, "1g.10gb", 2)])), stopped=["r0"])

    assert list(found.items()) == [
        ("preempt/r0", ()),
        ("repartition/n0/gpu0", ("preempt/r0",)),
        ("start/a", ("preempt/r0", "repartition/n0/gpu0")),
    ]


def test_an_instance_that_is_there_needs_no_repartition():
    nodes = [node(gpus=1, mig={0: [("3g.40gb", 0), ("3g.40gb", 4)]})]
    world = snapshot(nodes=nodes, jobs=[job("a", mig={"3g.40gb": 1})])

    assert steps(world, placement("a", replica(mig=[(0, "3g.40gb", 4)]))) == {"start/a": ()}


def test_a_gpu_changes_twice_where_a_move_needs_a_part_of_its_layout_first():
    """P leaves its instance only after M has moved in beside it, and then Q takes its place."""
    nodes = [
        node("a", gpus=1, mig={0: [("1g.10gb", 0)]}, cpus=10),
        node("b", gpus=1, mig={0: [("2g.20gb", 0)]}, cpus=100),
        node("c", gpus=1, mig={0: [("2g.20gb", 0)]}, cpus=10),
    ]
    moving = job("m", mig={"1g.10gb": 1}, cpus=8, at=[replica("a", mig=[(0, "1g.10gb", 0)], cpus=8)])
    leaving = job("p", mig={"2g.20gb": 1}, cpus=8, at=[replica("b", mig=[(0, "2g.20gb", 0)], cpus=8)])
    world = snapshot(nodes=nodes, jobs=[moving, leaving, job("q", mig={"3g.40gb": 1})])

    placed = (
        placement("m", replica("b", mig=[(0, "1g.10gb", 4)], cpus=8)),
        placement("p", replica("a", mig=[(0, "2g.20gb", 0)], cpus=8)),
        placement("q", replica("b", mig=[(0, "3g.40gb", 0)])),
    )
    found = steps(world, *placed)

    assert list(found) == [
        "repartition/b/gpu0",
        "migrate/m",
        "repartition/a/gpu0",
        "migrate/p",
        "repartition/b/gpu0/2",
        "start/q",
    ]
    assert found["repartition/b/gpu0/2"] == ("repartition/b/gpu0", "migrate/p")
    assert_carried_out(world, drafted(world, *placed))


CLOUD = pool("cloud", template=node("cloud", pool="cloud"))


def test_a_new_node_comes_before_the_move_that_needs_it_and_after_all_room_is_made_otherwise():
    new = [CLOUD.template.model_copy(update={"name": f"cloud-{index}"}) for index in (1, 2)]
    world = snapshot(
        nodes=[node(), node("old", pool="cloud")],
        jobs=[whole("m", *range(8)), whole("v", 0, on="old"), job("a", gpus=8), job("b", gpus=8)],
        pools=(CLOUD,),
    )

    found = steps(
        world,
        placement("m", replica("cloud-1", gpus=range(8))),
        placement("a", replica(gpus=range(8))),
        placement("b", replica("cloud-2", gpus=range(8))),
        stopped=["v"],
        added=new,
        removed=["old"],
    )

    assert list(found.items()) == [
        ("cordon/old", ()),
        ("preempt/v", ("cordon/old",)),
        ("scale_up/cloud-1", ()),
        ("migrate/m", ("scale_up/cloud-1",)),
        ("drain/old", ("cordon/old", "preempt/v")),
        ("scale_down/old", ("cordon/old", "preempt/v", "drain/old")),
        ("scale_up/cloud-2", ()),
        ("start/a", ("migrate/m",)),
        ("start/b", ("scale_up/cloud-2",)),
    ]


def test_new_nodes_are_repartitioned_once_they_exist():
    sliced = pool("mig", template=node("mig", gpus=1, mig={0: []}, pool="mig"))
    world = snapshot(jobs=[job("a", mig={"3g.40gb": 1})], pools=(sliced,))
    new = sliced.template.model_copy(update={"name": "mig-1"})

    found = steps(world, placement("a", replica("mig-1", mig=[(0, "3g.40gb", 4)])), added=[new])

    assert list(found.items()) == [
        ("scale_up/mig-1", ()),
        ("repartition/mig-1/gpu0", ("scale_up/mig-1",)),
        ("start/a", ("scale_up/mig-1", "repartition/mig-1/gpu0")),
    ]


def test_a_node_to_be_drained_is_confirmed_empty_only_if_the_plan_empties_it():
    nodes = [node(), node("d0", drain=True), node("d1", drain=True), node("d2", drain=True)]
    jobs = [whole("a", 0, on="d0"), whole("b", 0, on="d1"), whole("c", 1, on="d1")]

    found = steps(snapshot(nodes=nodes, jobs=jobs), placement("b", replica(gpus=[0])), stopped=["a"])

    assert found == {"preempt/a": (), "migrate/b": (), "drain/d0": ("preempt/a",)}


def test_growths_come_last_and_the_most_valuable_first():
    growing = [job(f"g{index}", gpus=1, replicas=(1, 2), at=[replica(gpus=[index])]) for index in range(2)]
    world = snapshot(jobs=[*growing, job("a", gpus=1)])
    placed = [
        *(placement(f"g{index}", replica(gpus=[index]), replica("n1", gpus=[index])) for index in range(2)),
        placement("a", replica(gpus=[5])),
    ]
    changes = PlanChanges(world, target(world, *placed))

    found = order_steps(changes, {"g0": 10, "g1": 20, "a": 5})

    assert [step.id for step in found] == ["start/a", "grow/g1", "grow/g0"]


# --- random moves that are known to have an order ----------------------------------------------------------

GEOMETRY = mig_geometry("H100-80GB")
PROFILES = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb")


def assert_carried_out(world, plan):
    """Every step finds what it counts on, and in the end all is as planned."""
    view = LiveView.of(world)
    for step in plan.actions:
        assert [str(sight.drift) for sight in view.check_preconditions(step) if sight.drift] == [], step.id
        view.done(step)
    assert view.now.placements == {placed.job: placed for placed in plan.placements}


@pytest.mark.slow
def test_an_order_is_found_wherever_there_is_one():
    seen = Counter()
    for seed in range(150):
        draw = random.Random(seed)
        world = _crowded(draw)
        goal = _walk(draw, world)

        plan = drafted(world, *goal.values(), stopped=_running(world) - goal.keys())

        assert_carried_out(world, plan)
        moves = [step for step in plan.actions if step.type == "migrate"]
        seen["moves"] += len(moves)
        seen["that wait"] += sum(any("migrate/" in id_ for id_ in step.after_actions) for step in moves)
        seen["relaid"] += sum(step.type == "repartition" for step in plan.actions)
        seen["twice"] += sum(step.id.endswith("/2") for step in plan.actions)
    assert seen["that wait"] > 50
    assert seen["relaid"] > 50
    assert seen["twice"] > 0


def _crowded(draw):
    """Three nodes with two whole GPUs and two in MIG mode, most of it in use; every job needs some CPUs."""
    nodes = [node(f"n{index}", gpus=4, cpus=draw.choice((10, 14)), mig={2: [], 3: []}) for index in range(3)]
    jobs, used = [], {}
    for number in range(draw.randint(4, 14)):
        asked = {"gpus": 1} if draw.random() < 0.4 else {"mig": {draw.choice(PROFILES): 1}}
        cpus = draw.choice((0, 1, 3))
        one = _somewhere(draw, asked, cpus, nodes, used.values())
        if one is not None:
            used[f"r{number}"] = one
            jobs.append(job(f"r{number}", cpus=cpus, at=[one], **asked))
    layouts = {
        (each.node, held.index): held
        for each in used.values()
        for held in each.gpus
        if hasattr(held, "profile")
    }
    nodes = [
        node(
            each.name,
            gpus=4,
            cpus=each.cpu_milli // 1000,
            mig={
                index: [
                    (held.profile, held.start)
                    for one in used.values()
                    for held in one.gpus
                    if one.node == each.name and (one.node, held.index) in layouts and held.index == index
                ]
                for index in (2, 3)
            },
        )
        for each in nodes
    ]
    waiting = [job(f"w{number}", mig={draw.choice(PROFILES[2:]): 1}) for number in range(3)]
    return snapshot(nodes=nodes, jobs=[*jobs, *waiting])


def _running(world):
    return {each.job for each in world.running_placements}


def _walk(draw, world):
    """Jobs stop or move one after the other, each to where there is room by then; others start at the end."""
    placed = {each.job: each for each in world.running_placements}
    for name in draw.sample(sorted(placed), len(placed)):
        mover = world.job_by_name[name]
        if draw.random() < 0.1:
            del placed[name]
        elif draw.random() < 0.8:
            request = mover.request
            asked = {"gpus": 1} if request.gpus else {"mig": request.mig}
            others = [each.replicas[0] for job_name, each in placed.items() if job_name != name]
            one = _somewhere(draw, asked, request.cpu_milli // 1000, world.cluster.nodes, others)
            # Within a GPU its own instance would be in the way of the new one.
            if one is not None and not _same_gpu(one, mover.running.replicas[0]):
                placed[name] = placement(name, one)
    for waiting in (each for each in world.jobs if not each.running):
        used = [each.replicas[0] for each in placed.values()]
        one = _somewhere(draw, {"mig": waiting.request.mig}, 0, world.cluster.nodes, used)
        if one is not None:
            placed[waiting.name] = placement(waiting.name, one)
    return placed


def _same_gpu(one, other):
    return one.node == other.node and {held.index for held in one.gpus} & {held.index for held in other.gpus}


def _somewhere(draw, asked, cpus, nodes, used):
    """A replica on any place with room beside those given."""
    used = list(used)
    found = []
    for each in nodes:
        held = [part for one in used if one.node == each.name for part in one.gpus]
        free = free_resources_by_node(
            [each], [placement("x", *[one for one in used if one.node == each.name])] if held else []
        )
        if free[each.name].cpu_milli < cpus * 1000:
            continue
        if "gpus" in asked:
            taken = {part.index for part in held if isinstance(part, GpuShare)}
            found += [replica(each.name, gpus=[index], cpus=cpus) for index in (0, 1) if index not in taken]
            continue
        ((profile, _),) = asked["mig"].items()
        for index in (2, 3):
            there = {
                MigInstance(profile=part.profile, start=part.start)
                for part in held
                if isinstance(part, MigSlice) and part.index == index
            }
            found += [
                replica(each.name, mig=[(index, profile, start)], cpus=cpus)
                for start in GEOMETRY.profiles[profile].starts
                if MigInstance(profile=profile, start=start) not in there
                and not list(GEOMETRY.faults({*there, MigInstance(profile=profile, start=start)}))
            ]
    return draw.choice(found) if found else None
