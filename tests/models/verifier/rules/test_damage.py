"""The rule about damage: nothing stays on a place that no longer holds, and what is damaged is named."""

from datetime import timedelta

from gpuplan.models.cluster import Gpu
from gpuplan.models.dependency import Retry
from gpuplan.models.job import Progress
from gpuplan.models.placement import MigSlice
from gpuplan.models.plan.violation import Rule
from gpuplan.models.verifier.rules.disruption import unnamed_damage
from tests.support.builders.build import job, node, placement, replica, snapshot
from tests.support.harness.verify_helpers import broken, judge, rules

HOURS = timedelta(hours=2)
"""Since before the jobs that run were started."""
SICK = node("n0", details=[Gpu(index=1, healthy=False)])
SLICED = node("m0", gpus=1, mig={0: [("3g.40gb", 0)]})


def instance(start):
    return replica("m0").model_copy(update={"gpus": (MigSlice(index=0, profile="3g.40gb", start=start),)})


LOST = (
    (node("n1"), replica("n0", gpus=[0]), "node n0 is gone"),
    (node("n0", ready=False), replica("n0", gpus=[0]), "node n0 is not ready"),
    (node("n0", gpus=4), replica("n0", gpus=[4]), "gpu 4 of node n0 is gone"),
    (node("n0", gpus=0), replica("n0", gpus=[0]), "gpu 0 of node n0 is gone"),
    (SICK, replica("n0", gpus=[0, 1]), "gpu 1 of node n0 is unhealthy"),
    (SLICED, instance(4), "gpu 0 of node m0 has another MIG layout"),
    (SLICED, replica("m0", gpus=[0]), "gpu 0 of node m0 has another MIG layout"),
    (node("m0"), instance(0), "gpu 0 of node m0 has another MIG layout"),
)
SOUND = (
    (SICK, replica("n0", gpus=[0, 2])),
    (SLICED, instance(0)),
    (node("n0", cordoned=True), replica("n0", gpus=[7])),
    (node("n0", drain=True), replica("n0")),
)


def test_a_job_does_not_keep_a_place_that_is_lost():
    for on, held, why in LOST:
        runs = job("a", gpus=1, at=[held])
        world = snapshot(nodes=[on], jobs=[runs])

        assert judge(world, runs.placement) == broken(
            Rule.DAMAGE, "job a", f"a replica that stays, {why}", "places that hold"
        )


def test_a_job_keeps_a_place_that_holds():
    for on, held in SOUND:
        runs = job("a", gpus=1, at=[held])

        assert judge(snapshot(nodes=[on], jobs=[runs]), runs.placement) == ()


def test_a_job_that_may_not_be_interrupted_stays_on_an_unhealthy_gpu():
    runs = job("a", gpus=1, at=[replica("n0", gpus=[1])], preemptible=False)
    world = snapshot(nodes=[SICK], jobs=[runs])

    assert judge(world, runs.placement) == ()
    assert list(unnamed_damage(world, world, ["a"])) == []
    assert [each.found for each in unnamed_damage(world, world, [])] == ["lost places and no finding"]


def test_a_gang_is_not_left_with_fewer_replicas_than_its_minimum():
    runs = job("a", gpus=1, replicas=3, at=[replica("n0", gpus=[index]) for index in range(2)])

    found = judge(snapshot(jobs=[runs]), runs.placement)

    assert found == broken(Rule.DAMAGE, "job a", "2 replicas", "at least 3")


def test_an_elastic_gang_may_be_left_with_the_replicas_that_hold():
    held = [replica("n0", gpus=[0]), replica("n0", gpus=[1]), replica("gone", gpus=[0])]
    runs = job("a", gpus=1, replicas=(1, 3), at=held)
    world, policy = snapshot(jobs=[runs]), rules(resize=True, minimum_runtime=0)

    assert judge(world, placement("a", *held[:2]), policy=policy) == ()
    assert [each.rule for each in judge(world, placement("a", *held[1:]), policy=policy)] == [Rule.DAMAGE]


def test_a_job_that_moves_off_a_lost_place_keeps_nothing():
    runs = job("a", gpus=1, at=[replica("n0", gpus=[1])])
    world = snapshot(nodes=[SICK], jobs=[runs])

    moved = placement("a", replica("n0", gpus=[2]))

    assert judge(world, moved, policy=rules(migrate=True, minimum_runtime=0)) == ()


def test_a_job_that_moves_onto_what_it_lost_is_judged_as_any_new_replica():
    held = [replica("n0", gpus=[1]), replica("n0", gpus=[2])]
    runs = job("a", gpus=1, replicas=2, at=held)
    moved = placement("a", held[0], replica("n0", gpus=[3]))

    found = judge(snapshot(nodes=[SICK], jobs=[runs]), moved, policy=rules(migrate=True, minimum_runtime=0))

    assert [each.rule for each in found] == [Rule.SELECTION]


def released(runs):
    return runs.model_copy(update={"running": None})


def test_every_job_that_lost_a_place_is_named_and_no_other_one():
    lost = job("lost", gpus=1, at=[replica("gone", gpus=[0])])
    short = job("short", gpus=1, replicas=2, at=[replica("n0", gpus=[0])])
    fine = job("fine", gpus=1, at=[replica("n0", gpus=[1])])
    found = snapshot(jobs=[lost, short, fine])
    sound = snapshot(jobs=[released(lost), released(short), fine])

    def wrong(named, then=sound):
        return [(each.subject, each.found) for each in unnamed_damage(found, then, named)]

    assert wrong(["lost", "short"]) == []
    assert wrong(["short"]) == [("job lost", "lost places and no finding")]
    assert wrong(["lost"]) == [("job short", "lost places and no finding")]
    assert wrong(["fine", "lost", "short"]) == [("job fine", "a finding and no lost place")]
    stopped = snapshot(jobs=[released(lost), released(short), released(fine)])
    assert wrong(["lost", "short"], stopped) == [("job fine", "changed without damage")]
    fewer = snapshot(jobs=[released(lost), released(short)])
    assert wrong(["lost", "short"], fewer) == [("jobs fine", "in one of the two only")]


def test_a_job_of_a_group_does_not_run_on_without_those_that_never_started():
    runs = job("a", gpus=1, at=[replica("n0", gpus=[0])], waited=HOURS, co_start="g")
    other = job("b", gpus=1, at=[replica("n0", gpus=[1])], waited=HOURS, co_start="h")
    missing = job("c", gpus=1, waited=HOURS, co_start="g")
    world = snapshot(jobs=[runs, other, missing])

    assert judge(world, runs.placement, other.placement) == broken(
        Rule.DAMAGE, "job a", "a replica that stays, other jobs of group g never started", "places that hold"
    )
    for more in (
        {"waited": timedelta(0)},
        {"held": True},
        {"preemptions": 1},
        {"failures": 1, "retry": Retry()},
        {"progress": Progress(completed="1h")},
    ):
        apart = job("c", gpus=1, **{"waited": HOURS, "co_start": "g"} | more)
        assert judge(snapshot(jobs=[runs, apart]), runs.placement) == ()
    firm = runs.model_copy(update={"preemptible": False})
    assert judge(snapshot(jobs=[firm, missing]), firm.placement) == ()
