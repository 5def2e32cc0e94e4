"""The timeline promises no more than a count of every GPU in every slot says is there; and takes it back."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest

from gpuplan.models.cluster import Level, MigInstance
from gpuplan.models.mig import mig_geometry
from gpuplan.models.problem.jobs import HeldResources, Incumbent, LocalityRule, Shape
from gpuplan.models.problem.problem import Charges, MigGpu, PowerCap, ReplicaRelease
from gpuplan.solvers.heuristics import future_reservations, placement, vacate
from gpuplan.solvers.heuristics.list_scheduling import reserve_best_starts
from gpuplan.solvers.state.constraints.power import PowerCaps
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.targets.to_target import color_intervals
from tests.support.builders import slot_problems
from tests.support.seeds import examples

BOTH_RACKS = (0, 0, 1)
PROFILES = ("1g.10gb", "2g.20gb", "3g.40gb")


def a_problem(seed):
    """Three nodes with running jobs that end, one of them opening later; whole GPUs, shares and MIG."""
    draw = random.Random(seed)
    slots = draw.choice((2, 4, 7))
    nodes, incumbents = [], []
    for number in range(3):
        gpus, returns = [1000] * 4, []
        cpu = draw.choice((8_000, 64_000))
        for gpu in range(draw.randint(0, 4)):
            milli, until = draw.choice((1000, 1000, 500)), draw.randint(1, slots)
            gpus[gpu] -= milli
            whole = milli == 1000
            shape = Shape(int(whole), 0 if whole else milli, (500, 0, 0))
            index = None
            if draw.random() < 0.5:
                index = len(incumbents)
                hold = (HeldResources(number, (gpu,)),)
                incumbents.append(
                    Incumbent(
                        f"r{index}", shape, hold, 0, slot_problems.MODEL, 1, -7, 0, 0, 0, 1, until=until
                    )
                )
            if until < slots:
                returns.append(ReplicaRelease(until, ((gpu, milli),), (), (500, 0, 0), index))
        mig = ()
        if draw.random() < 0.4:
            gpus[3] = 0
            used = (MigInstance(profile="1g.10gb", start=0),)
            mig = (MigGpu(3, (), used),)
            gpu, until = 3, draw.randint(1, slots)
            returns = [each for each in returns if each.gpus[0][0] != gpu]
            incumbents = [each for each in incumbents if each.holds[0] != HeldResources(number, (gpu,))]
            if until < slots:
                returns.append(ReplicaRelease(until, (), ((3, used[0]),), (0, 0, 0)))
        opens = draw.choice((0, 0, 0, 1)) if not returns and gpus.count(1000) + len(mig) == 4 else 0
        returns = [replace(each, incumbent=None) for each in returns]
        nodes.append(
            slot_problems.FreeNode(
                f"n{number}",
                tuple(gpus),
                (cpu, 10**6, 10**6),
                releases=tuple(sorted(returns, key=lambda each: each.slot)),
                mig=mig,
                opens=opens,
            )
        )
    classes = [a_class(draw, slots, number) for number in range(draw.randint(3, 9))]
    caps = ()
    if draw.random() < 0.4:
        caps = (PowerCap((0, 1), (700, 700), draw.choice((700, 2100, 4200)) * 1000),)
    return slot_problems.problem(
        nodes,
        classes,
        slots=slots,
        widest=4,
        incumbents=tuple(incumbents),
        domains=((Level.RACK, BOTH_RACKS),),
        power_caps=caps,
    )


def a_class(draw, slots, number):
    kind = draw.choice(({"gpus": 1}, {"gpus": 2}, {"gpus": 4}, "share", "share", "mig", {"gpus": 0}))
    if kind == "share":
        kind = {"gpus": 0, "milli": draw.choice((250, 500, 700))}
    elif kind == "mig":
        kind = {"gpus": 0, "mig": ((draw.choice(PROFILES), 1),)}
    rules = draw.choice(
        (
            LocalityRule(),
            LocalityRule(),
            LocalityRule(required=Level.RACK),
            LocalityRule(spread=Level.RACK, most=1),
        )
    )
    return slot_problems.waiting(
        *(f"j{number}-{copy}" for copy in range(draw.randint(1, 3))),
        slots=slots,
        hours=draw.randint(1, slots),
        points=draw.randint(1, 9000),
        cpu=draw.choice((0, 500, 4000)),
        minimum=draw.choice((1, 1, 2)),
        together=rules,
        ready=draw.choice((0, 0, 1)),
        carries=(0,) if draw.random() < 0.2 else (),
        avoids=((0, Level.RACK),) if draw.random() < 0.2 else (),
        **kind,
    )


def disturb(ledger, draw, steps):
    """Start, book, stop, bring back and give up, in any order."""
    problem = ledger.problem
    for _ in range(steps):
        index = draw.randrange(len(problem.classes))
        match draw.randrange(7):
            case 0:
                placement.place(ledger, index, problem.classes[index].options[0], jobs=draw.randint(1, 2))
            case 1 | 2 | 3:
                future_reservations.reserve_start(ledger, index, 0, draw.randint(1, problem.slots - 1))
            case 4 if problem.incumbents:
                vacate.stop_incumbent(ledger, draw.randrange(len(problem.incumbents)))
            case 5 if problem.incumbents:
                vacate.restore_incumbent(ledger, draw.randrange(len(problem.incumbents)))
            case 6 if ledger.reserved:
                number = draw.choice(sorted(ledger.reserved))
                placement.start_reserved(
                    ledger, number
                ) if draw.random() < 0.4 else ledger.cancel_reservation(number)


def stays(ledger):
    """(first slot, the one after the last, shape, site with GPU indices, job) of each job placed."""
    problem, sites = ledger.problem, color_intervals(ledger)
    for number, placed in ledger.placed.items():
        shape = problem.classes[placed.job_class].shape
        for site in placed.sites:
            yield 0, placed.option.ends[0], shape, site, number
    for number, reserved in ledger.reserved.items():
        job_class = problem.classes[reserved.job_class]
        until = job_class.options[reserved.option].ends[reserved.slot]
        for site in sites[number]:
            yield reserved.slot, until, job_class.shape, site, number


def overbooked(ledger):
    """What a count of every slot, node and GPU finds to be held twice; nothing if the ledger is right."""
    for slot in range(ledger.problem.slots):
        for index in range(len(ledger.problem.nodes)):
            free, cpu, used = there(ledger, slot, index)
            for first, until, shape, site, _ in stays(ledger):
                if site.node == index and first <= slot < until:
                    cpu -= shape.amounts[0]
                    if len(site.gpus) != (shape.gpus or bool(shape.gpu_milli)):
                        yield slot, index, "too few GPUs"
                    for gpu in site.gpus:
                        free[gpu] -= shape.gpu_milli or 1000
                    for gpu, profile, start in site.slices:
                        used[gpu].append((profile, start))
            if min(free) < 0 or cpu < 0:
                yield slot, index, free, cpu
            for places in used.values():
                instances = [MigInstance(profile=profile, start=start) for profile, start in places]
                if len(set(places)) < len(places) or list(
                    mig_geometry(slot_problems.MODEL).faults(instances)
                ):
                    yield slot, index, places


def there(ledger, slot, index):
    """(thousandths by GPU, CPU, MIG instances in use) that running jobs leave on a node in a slot."""
    problem = ledger.problem
    node = problem.nodes[index]
    free = list(node.gpus) if slot >= node.opens else [0] * len(node.gpus)
    cpu = node.amounts[0] if slot >= node.opens else 0
    used = {gpu.index: [(each.profile, each.start) for each in gpu.used] for gpu in node.mig}
    for back in (each for each in node.releases if each.slot <= slot):
        cpu += back.amounts[0]
        for gpu, milli in back.gpus:
            free[gpu] += milli
        for gpu, instance in back.slices:
            used[gpu].remove((instance.profile, instance.start))
    for one in (problem.incumbents[number] for number in ledger.disruptions.having("stop")):
        if one.holds[0].node == index and slot < one.until:
            cpu += one.shape.amounts[0]
            free[one.holds[0].gpus[0]] += one.shape.gpu_milli or 1000
    return free, cpu, used


def broken(ledger):
    """Rules about several nodes that are broken."""
    problem = ledger.problem
    jobs = defaultdict(list)
    for first, until, shape, site, number in stays(ledger):
        jobs[number].append((first, until, shape, site))
    for slot in range(problem.slots):
        for cap in problem.power_caps:
            drawn = sum(
                shape.quota_milli * 700
                for first, until, shape, site, _ in stays(ledger)
                if site.node in cap.nodes and first <= slot < until
            )
            left = cap.left
            for one in (problem.incumbents[index] for index in ledger.disruptions.having("stop")):
                left += (
                    700 * one.shape.quota_milli if one.holds[0].node in cap.nodes and slot < one.until else 0
                )
            if drawn > left:
                yield slot, cap, drawn
        here = {
            number: ({BOTH_RACKS[site.node] for *_, site in held}, class_of(ledger, number))
            for number, held in jobs.items()
            if held[0][0] <= slot < held[0][1]
        }
        for number, (racks, job_class) in here.items():
            for other, (others, affinity) in here.items():
                if number != other and job_class.avoids and affinity.carries and racks & others:
                    yield slot, number, other
    for number, held in jobs.items():
        rules, racks = class_of(ledger, number).together, [BOTH_RACKS[site.node] for *_, site in held]
        if rules.required and len(set(racks)) > 1:
            yield number, "apart"
        if rules.spread and max(Counter(racks).values()) > rules.most:
            yield number, "too close"


def class_of(ledger, number):
    found = ledger.placed.get(number) or ledger.reserved[number]
    return ledger.problem.classes[found.job_class]


def state(ledger):
    """All that a ledger knows of later slots, and its points."""
    timeline, ahead = ledger.timeline, ledger.queues.future
    return (
        ledger.objective,
        dict(sorted(ledger.reserved.items())),
        dict(sorted(ledger.placed.items())),
        timeline.milli.tolist(),
        timeline.left.tolist(),
        timeline.shared.tolist(),
        timeline.whole.tolist(),
        timeline.reserved.tolist(),
        timeline.reservations,
        {gpu: [sorted(places) for places in used] for gpu, used in timeline._used.items()},
        [each._left.tolist() for each in ledger.constraints if isinstance(each, PowerCaps)],
        [usage.tolist() for usage in ahead._usage],
        ledger.capacity.replicas.tolist(),
        ledger._left,
    )


@pytest.mark.slow
def test_nothing_is_held_twice_in_any_slot():
    done = Counter()
    for seed in range(examples(400)):
        ledger, draw = Ledger(a_problem(seed)), random.Random(seed)
        disturb(ledger, draw, 25)
        assert list(overbooked(ledger)) == [], seed
        assert list(broken(ledger)) == [], seed
        reserve_best_starts(ledger)
        assert list(overbooked(ledger)) == [], seed
        assert list(broken(ledger)) == [], seed
        for reserved in ledger.reserved.values():
            shape = ledger.problem.classes[reserved.job_class].shape
            done[
                "mig" if shape.mig else "share" if shape.gpu_milli else "whole" if shape.gpus else "cpu"
            ] += 1
        done["placed"] += len(ledger.placed)
        done["stopped"] += len(ledger.disruptions.having("stop"))
    assert min(done[what] for what in ("mig", "share", "whole", "cpu", "placed", "stopped")) > 50


@pytest.mark.slow
def test_rollback_restores_every_slot():
    for seed in range(examples(200)):
        ledger, draw = Ledger(a_problem(seed)), random.Random(seed)
        disturb(ledger, draw, 12)
        before, mark = state(ledger), ledger.undo.mark()
        disturb(ledger, draw, 12)
        reserve_best_starts(ledger)
        ledger.undo.rollback(mark)
        assert state(ledger) == before, seed


@pytest.mark.slow
def test_room_for_whole_gpus_is_what_can_be_booked_there():
    compared = 0
    for seed in range(examples(120)):
        draw, question = random.Random(seed), a_problem(seed)
        question = replace(question, power_caps=())
        ledger = Ledger(question)
        disturb(ledger, draw, 10)
        slot, gpus = draw.randrange(1, question.slots), draw.choice((1, 2))
        until = draw.randint(slot + 1, question.slots)
        shape, nodes = Shape(gpus, 0, (500, 0, 0)), np.arange(3)
        room = ledger.timeline.room_in(shape, nodes, slot, until)
        for node in range(3):
            taken = 0
            while (site := ledger.timeline.find(shape, node, slot, until)) is not None:
                ledger.timeline.reserve(shape, site, (slot, until), 1)
                taken += 1
            assert taken == room[node], seed
            compared += taken
    assert compared > 100


def test_a_fresh_timetable_says_what_is_free_slot_by_slot():
    node = slot_problems.node(
        "n0", 1, of=3, cpu=1000, returns=[slot_problems.back(1, 0, cpu=5), slot_problems.back(3, 1, cpu=7)]
    )
    ledger = Ledger(slot_problems.problem([node], [], slots=5))

    assert ledger.timeline.whole[1:, 0].tolist() == [2, 2, 3, 3]
    assert ledger.timeline.left[1:, 0, 0].tolist() == [1005, 1005, 1012, 1012]


def test_what_is_held_beyond_what_there_is_is_paid_back_first():
    node = replace(
        slot_problems.node("n0", 1, cpu=0, returns=[slot_problems.back(2, cpu=5)]), overdrawn=(3, 0, 0)
    )
    ledger = Ledger(slot_problems.problem([node], [], slots=4))

    assert ledger.timeline.left[1:, 0, 0].tolist() == [-3, 2, 2]


def test_a_start_that_ends_before_a_booking_begins_is_not_in_its_way():
    jobs = [
        slot_problems.waiting("reserved", slots=6, hours=2, gpus=4),
        slot_problems.waiting("short", slots=6, hours=2, gpus=4),
        slot_problems.waiting("long", slots=6, hours=3, gpus=1),
    ]
    ledger = Ledger(slot_problems.problem([slot_problems.node("n0", 4)], jobs, slots=6))

    assert future_reservations.reserve_start(ledger, 0, 0, 2) is not None
    assert not placement.place(ledger, 2, jobs[2].options[0], jobs=1)
    assert placement.place(ledger, 1, jobs[1].options[0], jobs=1) == 1


def test_a_gpu_switched_to_mig_mode_is_gone_for_bookings_however_short_the_job():
    jobs = [
        slot_problems.waiting("reserved", slots=4, gpus=1, hours=2),
        slot_problems.waiting("sliced", slots=4, gpus=0, mig=(("1g.10gb", 1),), hours=1),
    ]
    question = slot_problems.problem(
        [slot_problems.node("n0", 1)], jobs, slots=4, charges=Charges(switch_mode=0)
    )
    without, beside = Ledger(question), Ledger(question)
    assert future_reservations.reserve_start(beside, 0, 0, 2) is not None

    assert placement.place(without, 1, jobs[1].options[0], jobs=1) == 1
    assert future_reservations.reserve_start(without, 0, 0, 2) is None
    assert placement.place(beside, 1, jobs[1].options[0], jobs=1) == 0
