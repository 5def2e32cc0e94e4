"""Aggregate answers made by hand become plans: places kept, instances reserved, circles undone."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from gpuplan.models.affinity import LocalityPreference, Spread
from gpuplan.models.cluster import Level, MigInstance
from gpuplan.models.formulation.decode import Aggregate, Batch
from gpuplan.models.placement import Promise
from gpuplan.models.policy.policy import Disruption, MigPolicy, Policy, Prices
from gpuplan.models.policy.settings import HorizonPolicy
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics.promise_reservations import reserve_promised_starts
from gpuplan.solvers.rounding.disaggregate import disaggregate
from gpuplan.solvers.targets.to_target import target_of
from tests.support.builders import build
from tests.support.builders.aggregate_builders import Planted, Question

HOUR = timedelta(hours=1)

MOVING = Policy(disruption=Disruption(migrate=True))


def racks(*sizes, gpus=8):
    return [
        build.node(f"r{rack}-{number}", gpus=gpus, region="eu", zone="a", rack=f"r{rack}")
        for rack, size in enumerate(sizes)
        for number in range(size)
    ]


def test_replicas_stand_where_the_answer_has_them():
    """Best fit alone would use the tighter node."""
    nodes = [build.node("n0", gpus=8), build.node("n1", gpus=2)]
    question = Question(build.snapshot(nodes=nodes, jobs=[build.job(gpus=2)]))

    planned = question.answer(Aggregate(batches=(question.batch(("a", 1), n0=1),)))

    assert planned.nodes("a") == ["n0"]


def test_job_without_its_place_gets_another_and_then_counts_as_no_miss():
    question = Question(build.snapshot(jobs=[build.job(name, gpus=8) for name in "ab"]))

    planned = question.answer(Aggregate(batches=(question.batch(("a", 2), n0=2),)))

    assert {node for job in "ab" for node in planned.nodes(job)} == {"n0", "n1"}


def test_job_that_fits_nowhere_is_missed():
    question = Question(
        build.snapshot(nodes=build.cluster(1), jobs=[build.job(name, gpus=8) for name in "ab"])
    )

    planned = question.answer(Aggregate(batches=(question.batch(("a", 2), n0=2),)), missed=1)

    assert set(planned.places) == {"a"}


def test_gangs_that_need_one_rack_get_their_racks_before_others_take_them():
    jobs = [
        *(build.job(f"s{index}", gpus=8, priority=5) for index in range(2)),
        build.job("g", gpus=4, replicas=4, locality=LocalityPreference(required=Level.RACK)),
    ]
    question = Question(build.snapshot(nodes=racks(2, 2), jobs=jobs))
    batches = (
        question.batch(("s0", 2), r0X0_r0X1_r1X0_r1X1=2),
        question.batch(("g", 1), r1X0_r1X1=4),
    )

    planned = question.answer(Aggregate(batches=batches))

    assert set(planned.nodes("g")) == {"r1-0", "r1-1"}
    assert len(planned.places) == 3


def test_equal_gangs_each_get_a_rack_of_their_own():
    jobs = [
        build.job(name, gpus=8, replicas=2, locality=LocalityPreference(required=Level.RACK)) for name in "ab"
    ]
    question = Question(build.snapshot(nodes=racks(2, 2), jobs=jobs))

    planned = question.answer(Aggregate(batches=(question.batch(("a", 2), r0X0_r0X1=2, r1X0_r1X1=2),)))

    assert sorted((planned.nodes("a"), planned.nodes("b"))) == [["r0-0", "r0-1"], ["r1-0", "r1-1"]]


def test_spread_gangs_are_dealt_out_over_domains():
    jobs = [build.job(name, gpus=1, replicas=3, spread=Spread(max=1)) for name in "abc"]
    question = Question(build.snapshot(nodes=build.cluster(4, gpus=3), jobs=jobs))

    planned = question.answer(Aggregate(batches=(question.batch(("a", 3), n0=3, n1=2, n2=2, n3=2),)))

    assert all(len(set(planned.nodes(job))) == 3 for job in "abc")


def test_gangs_that_would_rather_be_together_are_filled_in_one_after_the_other():
    jobs = [
        build.job(name, gpus=8, replicas=2, priority=3, locality=LocalityPreference(preferred=Level.RACK))
        for name in "ab"
    ]
    question = Question(build.snapshot(nodes=racks(2, 2), jobs=jobs))

    planned = question.answer(Aggregate(batches=(question.batch(("a", 2), r0X0_r1X0_r0X1_r1X1=4),)))

    assert "locality" not in planned.terms


def test_mig_jobs_get_the_instances_kept_for_them():
    """Alone the small jobs would take the lower half of the GPU; the answer has a 4g there."""
    jobs = [
        build.job("big", mig={"4g.40gb": 1}),
        *(build.job(f"s{index}", mig={"1g.10gb": 1}, priority=9) for index in range(3)),
    ]
    nodes = [build.node("n0", gpus=1, mig={0: []})]
    question = Question(build.snapshot(nodes=nodes, jobs=jobs), Policy(prices=Prices(repartition=0)))
    kept = [MigInstance(profile="4g.40gb", start=0)]
    kept += [MigInstance(profile="1g.10gb", start=start) for start in (4, 5, 6)]

    planned = question.answer(
        Aggregate(
            batches=(question.batch(("s0", 3), n0=3), question.batch(("big", 1), n0=1)),
            instances={(0, 0): tuple(kept)},
        )
    )

    assert planned.held("big") == [(0, "4g.40gb", 0)]
    assert len(planned.places) == 4


def test_gpu_kept_for_instances_is_switched_and_no_gpu_for_others():
    jobs = [build.job("g", gpus=1, priority=50), build.job("m", mig={"3g.40gb": 1}, priority=9)]
    policy = Policy(mig=MigPolicy(switch_mode=True))
    question = Question(build.snapshot(nodes=[build.node("n0", gpus=2)], jobs=jobs), policy)

    planned = question.answer(
        Aggregate(
            batches=(question.batch(("g", 1), n0=1), question.batch(("m", 1), n0=1)),
            instances={(0, 0): (MigInstance(profile="3g.40gb", start=4),)},
        )
    )

    assert (planned.held("g"), planned.held("m")) == ([1], [(0, "3g.40gb", 4)])


def test_instance_that_may_not_be_created_is_not_kept():
    node = build.node("n0", gpus=1, mig={0: [("1g.10gb", 0)]})
    policy = Policy(mig=MigPolicy(repartition=False))
    question = Question(build.snapshot(nodes=[node], jobs=[build.job("m", mig={"1g.10gb": 1})]), policy)

    planned = question.answer(
        Aggregate(
            batches=(question.batch(("m", 1), n0=1),),
            instances={(0, 0): (MigInstance(profile="1g.10gb", start=3),)},
        )
    )

    assert planned.held("m") == [(0, "1g.10gb", 0)]


def test_gpu_kept_for_instances_that_never_come_is_a_gpu_again():
    policy = Policy(mig=MigPolicy(switch_mode=True))
    question = Question(
        build.snapshot(nodes=[build.node("n0", gpus=1)], jobs=[build.job("g", gpus=1)]), policy
    )

    planned = question.answer(Aggregate(instances={(0, 0): (MigInstance(profile="3g.40gb", start=4),)}))

    assert planned.held("g") == [0]


def test_victims_go_first_and_those_not_needed_come_back():
    jobs = [
        *(
            build.job(f"r{index}", gpus=4, at=[build.replica(gpus=range(4 * index, 4 * index + 4))])
            for index in (0, 1)
        ),
        build.job("a", gpus=4, priority=9),
    ]
    question = Question(build.snapshot(nodes=build.cluster(1), jobs=jobs))

    planned = question.answer(Aggregate(stopped=(0, 1), batches=(question.batch(("a", 1), n0=1),)))

    assert len(planned.places) == 2


def test_elastic_job_shrinks_as_planned():
    at = [build.replica(gpus=[index]) for index in range(8)]
    jobs = [build.job("r", gpus=1, replicas=(4, 8), at=at), build.job("a", gpus=4, priority=9)]
    question = Question(build.snapshot(nodes=build.cluster(1), jobs=jobs))

    planned = question.answer(
        Aggregate(shrunk=((0, (0, 1, 2, 3)),), batches=(question.batch(("a", 1), n0=1),))
    )

    assert [len(planned.places[job].replicas) for job in ("r", "a")] == [4, 1]


def moving_out(place):
    """A job on one GPU that is to move away so that a job of eight fits; `place` is where it should go."""
    jobs = [build.job("r", gpus=1, at=[build.replica("n0", gpus=[0])]), build.job("a", gpus=8, priority=9)]
    nodes = [build.node("n0"), build.node("n1", gpus=1)]
    question = Question(build.snapshot(nodes=nodes, jobs=jobs), MOVING)
    batches = [question.batch(("a", 1), n0=1)]
    if place:
        batches.append(question.batch(("r", 1), role=ClassRole.MOVE, **{place: 1}))
    return question, Aggregate(moved=(0,), batches=tuple(batches))


def test_job_moves_where_the_answer_says():
    question, aggregate = moving_out("n1")

    planned = question.answer(aggregate)

    assert (planned.nodes("r"), planned.nodes("a")) == (["n1"], ["n0"])


def test_job_that_left_and_has_no_place_stays_where_it_was_if_it_can():
    jobs = [build.job("r", gpus=1, at=[build.replica("n0", gpus=[0])]), build.job("a", gpus=1, priority=9)]
    question = Question(build.snapshot(nodes=[build.node("n0", gpus=1)], jobs=jobs), MOVING)

    planned = question.answer(Aggregate(moved=(0,)))

    # It may be stopped for the better job, and is: nothing is lost by asking for the impossible.
    assert set(planned.places) in ({"a"}, {"r"})


def test_job_that_may_not_be_stopped_gets_its_place_back_from_the_job_that_took_it():
    jobs = [
        build.job("r", gpus=8, at=[build.replica("n0", gpus=range(8))]),
        build.job("a", gpus=8, priority=9),
    ]
    policy = Policy(disruption=Disruption(preempt=False, migrate=True))
    question = Question(build.snapshot(nodes=build.cluster(1), jobs=jobs), policy)

    planned = question.answer(
        Aggregate(moved=(question.incumbent("r"),), batches=(question.batch(("a", 1), n0=1),))
    )

    assert set(planned.places) == {"r"}


@pytest.mark.parametrize("spare", [0, 1])
def test_jobs_that_would_change_places_do_so_only_with_room_to_begin(spare):
    """r is faster on the other model, s as well: without a spare GPU no job can go first."""
    nodes = [build.node("n0", model="A100-80GB", gpus=1 + spare), build.node("n1", gpus=1)]
    jobs = [
        build.job(
            "r",
            gpus=1,
            priority=40,
            gpu_models={"H100-80GB": 1, "A100-80GB": 0.1},
            at=[build.replica("n0", gpus=[0])],
        ),
        build.job(
            "s",
            gpus=1,
            priority=40,
            gpu_models={"A100-80GB": 1, "H100-80GB": 0.1},
            at=[build.replica("n1", gpus=[0])],
        ),
    ]
    question = Question(build.snapshot(nodes=nodes, jobs=jobs), MOVING)
    batches = (
        question.batch(("r", 1), role=ClassRole.MOVE, n1=1),
        question.batch(("s", 1), role=ClassRole.MOVE, n0=1),
    )

    planned = question.answer(Aggregate(moved=(0, 1), batches=batches))

    moved = (planned.nodes("r"), planned.nodes("s")) == (["n1"], ["n0"])
    assert moved == bool(spare)


def test_nodes_are_opened_and_closed_as_planned():
    template = build.node("p", gpus=4, price_per_hour=1.0)
    own = [template.model_copy(update={"name": name, "pool": "p"}) for name in ("p-1", "p-2")]
    job = build.job("r", gpus=1, at=[build.replica("p-1", gpus=[0])])
    snapshot = build.snapshot(nodes=own, jobs=[job, build.job("a", gpus=4)])
    update = {"pools": (build.pool("p", template=template),)}
    snapshot = snapshot.model_copy(update={"cluster": snapshot.cluster.model_copy(update=update)})
    question = Question(snapshot, MOVING)

    opened = question.answer(Aggregate(opened=((0, 1),)))
    closed = question.answer(Aggregate(closed=((0, 1),)))

    # An opened node that no job uses is not opened; a closed one takes none.
    assert opened.target.added == ()
    assert closed.target.removed == ("p-2",)
    assert set(closed.places) == {"r"}


def test_job_that_stays_longer_gets_no_place_in_front_of_a_promise():
    """Sites are taken for all jobs of a kind at once, though they stay for different times."""
    places = (build.replica(gpus=range(8)),)
    promised = build.job(
        "c", gpus=8, expected_duration="1h", promise=Promise(start=build.NOW + HOUR, replicas=places)
    )
    short = build.job("a", gpus=4, expected_duration="1h")
    long = build.job("b", gpus=4, expected_duration="2h")
    snapshot = build.snapshot(nodes=[build.node("n0")], jobs=[promised, short, long])
    policy = Policy(horizon=HorizonPolicy(slots=3))
    problem = reserve_promised_starts(build_problem(snapshot, policy))
    index = {problem.classes[number].jobs[0]: number for number in range(3)}
    both = Batch(((index["a"], 1), (index["b"], 1)), (0,), (((0,), 2),))

    ledger, _ = disaggregate(problem, Aggregate(batches=(both,)))

    target = target_of(ledger, ())
    answer = verify(snapshot, policy, target.placements, planned=target.planned)
    assert answer.violations == ()
    assert [each.job for each in target.placements] == ["a"]
    assert {each.job: each.slot for each in target.planned} == {"b": 2, "c": 1}


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(4))
def test_nothing_is_missed_where_sizes_divide_each_other_though_gangs_are_wide_and_others_leave(chunk):
    wide = stopped = 0
    for seed in range(50 * chunk, 50 * (chunk + 1)):
        planted = Planted(seed)
        question, aggregate = planted.answer()

        planned = question.answer(aggregate)

        assert {name for name, _ in planted.batches} <= planned.places.keys(), seed
        assert not planned.places.keys() & set(planted.stopped), seed
        wide += any(sum(ranks.values()) > 4 for _, ranks in planted.batches)
        stopped += len(planted.stopped)
    assert wide >= 3
    assert stopped >= 100


def test_gang_on_nodes_that_are_not_empty_enough_preempts_a_little_more():
    """The answer counts on two nodes, and on one of them a job that is not worth it still runs."""
    jobs = [
        build.job("small", gpus=1, at=[build.replica("n0", gpus=[0])]),
        build.job("gang", gpus=8, replicas=2, priority=9),
        build.job("other", gpus=4, priority=9),
    ]
    question = Question(build.snapshot(nodes=build.cluster(2), jobs=jobs))
    batches = (question.batch(("gang", 1), n0_n1=2), question.batch(("other", 1), n1=1))

    planned = question.answer(Aggregate(batches=batches), missed=1)

    assert set(planned.places) == {"gang"}


def test_deadline_that_has_passed_leaves_one_pass_with_every_promise_kept():
    jobs = [build.job(name, gpus=8) for name in "ab"]
    question = Question(build.snapshot(nodes=build.cluster(2), jobs=jobs))
    aggregate = Aggregate(batches=(question.batch(("a", 2), n0=2),))

    ledger, missed = disaggregate(question.problem, aggregate, deadline=0.0)

    assert (len(ledger.placed), missed) == (2, 0)


@pytest.mark.slow
def test_deadline_to_come_changes_nothing():
    for seed in range(20):
        question, aggregate = Planted(seed).answer()

        always, _ = disaggregate(question.problem, aggregate)
        late, _ = disaggregate(question.problem, aggregate, deadline=time.monotonic() + 3600)

        assert target_of(always, ()) == target_of(late, ())


@pytest.mark.parametrize(("once", "found"), [(True, None), (False, [0, 1])])
def test_gang_that_starts_later_keeps_the_rack_that_comes_free_for_it(once, found):
    """In the first pass a job of now may take a node of it, though there is another one for that."""
    nodes = [build.node(f"n{number}", rack=f"r{number // 2}") for number in range(4)]
    jobs = [
        build.job("ends", gpus=8, at=[build.replica("n0", gpus=range(8))], expected_duration="90m"),
        build.job("goes-on", gpus=8, at=[build.replica("n2", gpus=range(8))], expected_duration="48h"),
        build.job("gang", gpus=8, replicas=2, locality={"required": "rack"}, expected_duration="1h"),
        build.job("now", gpus=8, expected_duration="48h"),
    ]
    policy = Policy(horizon={"slots": 3}, disruption={"preempt": False, "migrate": False})
    question = Question(build.snapshot(nodes=nodes, jobs=jobs), policy)
    batches = (question.batch(("now", 1), n1_n3=1),)
    aggregate = Aggregate(batches=batches, later=((question.job_class("gang"), 0, 1, 1),))

    ledger, missed = disaggregate(question.problem, aggregate, once=once)

    reserved = [[site.node for site in one.sites] for one in ledger.reserved.values()]
    assert reserved == ([found] if found else [])
    assert (missed, len(ledger.placed)) == (found is None, 1)


def test_job_that_may_not_follow_the_victim_gets_the_node_that_was_free():
    """In the order of points the other job would take it, and this one would find none."""
    jobs = [
        build.job("held", gpus=8, priority=4, at=[build.replica("n1", gpus=range(8))]),
        build.job("high", gpus=8, priority=5, weight=9),
        build.job("low", gpus=8, priority=1),
    ]
    question = Question(build.snapshot(nodes=build.cluster(2), jobs=jobs))
    batches = (question.batch(("high", 1), n0_n1=1), question.batch(("low", 1), n0_n1=1))
    answer = Aggregate(stopped=(question.incumbent("held"),), batches=batches)

    planned = question.answer(answer)

    assert (planned.nodes("low"), planned.nodes("high")) == (["n0"], ["n1"])
