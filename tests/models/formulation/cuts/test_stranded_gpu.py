from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.encode import encode
from gpuplan.models.formulation.params import FormulationParams
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.problem_builder import build_problem
from tests.support.builders import build
from tests.support.harness.family_rows import model, most, rows
from tests.support.seeds import examples
from tests.support.strategies.random_targets import legal_target

NODES = build.cluster(2, gpus=8, cpus=96)


def heavy(name="heavy"):
    """A job that leaves four GPUs with no more than sixteen cores."""
    return build.job(name, gpus=4, cpus=80)


def light(name):
    """A job that takes four GPUs with four cores fewer than a node has of them."""
    return build.job(name, gpus=4, cpus=32)


def taken(snapshot):
    """Coefficients by GPUs and cores of a replica, and the right-hand side, of the row about cores."""
    _, x, formulation = model(snapshot)
    (row,) = [
        each for each in formulation.rows if each.family == "stranded_gpu" and each.key[-1] == "CPU cores"
    ]
    of = dict(zip(row.columns.tolist(), row.coefficients.tolist(), strict=True))
    kinds = {
        (x.kinds[index].shape.gpus, x.kinds[index].shape.amounts[0] // 1000): of[column]
        for (index, *_), column in x.replicas.items()
        if column in of
    }
    return kinds, row.upper


def test_gpus_beside_a_job_heavy_on_cpu_are_no_room():
    """Of GPUs and cores there are enough for all four."""
    snapshot = build.snapshot(nodes=NODES, jobs=[heavy(), *(light(f"l{number}") for number in range(3))])

    assert most(snapshot, "gpu_capacity", "cpu_memory") == 4
    assert most(snapshot, "gpu_capacity", "cpu_memory", "stranded_gpu") == 3


def test_no_job_counts_for_more_than_what_others_can_then_not_use():
    jobs = [heavy(), light("light"), build.job("single", gpus=1, cpus=8)]

    kinds, upper = taken(build.snapshot(nodes=NODES, jobs=jobs))

    assert kinds == {(4, 80): 6, (4, 32): 4, (1, 8): 1}
    assert upper == 2 * 8


def test_memory_counts_as_cores_do():
    fat = build.job("fat", gpus=4, memory_gib=80)
    thin = [build.job(f"t{number}", gpus=4, memory_gib=32) for number in range(3)]
    snapshot = build.snapshot(nodes=build.cluster(2, gpus=8, memory_gib=96), jobs=[fat, *thin])

    assert most(snapshot, "gpu_capacity", "cpu_memory", "stranded_gpu") == 3


def test_work_without_gpus_strands_them_too():
    jobs = [build.job("cores", cpus=64), build.job("light", gpus=1, cpus=8)]

    kinds, upper = taken(build.snapshot(nodes=NODES, jobs=jobs))

    assert kinds == {(0, 64): 4, (1, 8): 1}
    assert upper == 2 * 8


def test_there_is_no_row_where_all_are_light():
    jobs = [light("light"), build.job("single", gpus=1, cpus=12), build.job("share", milli=500, cpus=12)]

    assert rows(build.snapshot(nodes=NODES, jobs=jobs), "stranded_gpu") == []


def test_gpus_in_use_by_others_are_not_usable():
    running = build.job("r", gpus=2, cpus=60, at=[build.replica("n0", gpus=range(2), cpus=60)])

    _, upper = taken(
        build.snapshot(
            nodes=NODES, jobs=[running, heavy(), light("light"), build.job("single", gpus=1, cpus=8)]
        )
    )

    assert upper == 8 + 4


SIZES = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 40)), min_size=2, max_size=4, unique=True)


@pytest.mark.slow
@given(SIZES, st.integers(1, 8), st.integers(1, 48))
@example([(4, 5), (0, 3), (1, 2)], 8, 10)  # one job is heavy
@example([(4, 4), (2, 2)], 8, 8)  # no job is
def test_the_row_is_what_the_best_way_to_fill_a_node_comes_to(sizes, gpus, cores):
    sizes = [(size, core) for size, core in sizes if size <= gpus and core <= cores]
    jobs = [
        build.job(f"j{number}-{size}-{core}", gpus=size, cpus=core)
        for size, core in sizes
        for number in range(cores // core)
    ]
    snapshot = build.snapshot(nodes=build.cluster(1, gpus=gpus, cpus=cores), jobs=jobs)

    if any(row.key[-1] == "CPU cores" for row in rows(snapshot, "stranded_gpu")):
        weights, upper = taken(snapshot)
        assert upper == fullest(gpus, cores, weights)
    else:
        weights = {(size, core): size for size, core in sizes}
        assert not any(is_heavy(kind, gpus, cores, weights) for kind in weights)


def fullest(gpus, cores, weights):
    """The most that what fits on a node weighs, all ways to fill it tried."""
    counts = product(*(range(cores // core + 1) for _, core in weights))
    return max(
        sum(number * weight for number, weight in zip(each, weights.values(), strict=True))
        for each in counts
        if sum(number * size for number, (size, _) in zip(each, weights, strict=True)) <= gpus
        and sum(number * core for number, (_, core) in zip(each, weights, strict=True)) <= cores
    )


def is_heavy(kind, gpus, cores, weights):
    """Whether each of a kind leaves fewer GPUs to others than its own explain, however many there are."""
    size, core = kind
    most = min(cores // core, gpus // size if size else cores)
    lost = (
        (fullest(gpus, cores, weights) - fullest(gpus - number * size, cores - number * core, weights))
        // number
        for number in range(1, most + 1)
    )
    return min(lost) > size


@pytest.mark.slow
@pytest.mark.parametrize(
    "limits", [{}, {"max_patterns_per_node": 2}, {"max_patterns": 0, "max_average_patterns": 0}]
)
def test_every_legal_target_satisfies_the_rows_on_crowded_nodes_too(limits):
    kept = 0
    for seed in range(examples(12)):
        snapshot, policy = contested(seed), Policy(priority=build.BY_WEIGHT)
        problem = build_problem(snapshot, policy)
        x = Columns(problem, FormulationParams(**limits))
        formulation = formulate(problem, x)
        draw = random.Random(seed)
        assert bool(x.eviction_patterns.crowded) == bool(limits)
        for _ in range(8):
            values = encode(x, legal_target(snapshot, policy, problem, draw))
            found = [row for row in formulation.rows if row.family == "stranded_gpu"]
            assert [row for row in found if not row.holds(values)] == []
            kept += sum(row.value(values) == row.upper for row in found)
    assert kept > 0  # nothing to spare


def contested(seed):
    """Nodes with jobs that may be stopped, heavy and light ones, and a queue of both and of shares."""
    draw = random.Random(f"stranding {seed}")
    running = []
    for node in ("n0", "n1", "n2"):
        first = 0
        while (gpus := draw.choice((1, 2, 4))) and first + gpus <= 7:
            cores = gpus * draw.choice((6, 8, 12))
            held = build.replica(node, gpus=range(first, first + gpus), cpus=cores)
            running.append(build.job(f"{node}-{first}", gpus=gpus, cpus=cores, at=[held]))
            first += gpus
    shapes = [(4, 80), (4, 32), (2, 40), (1, 20), (1, 8), (0, 24)]
    waiting = [
        build.job(f"w{number}", gpus=gpus, cpus=cores, priority=draw.choice((2, 5)))
        for number, (gpus, cores) in enumerate(draw.choices(shapes, k=10))
    ]
    shares = [
        build.job(f"s{number}", milli=500, cpus=draw.choice((10, 14)), priority=5) for number in range(2)
    ]
    nodes = build.cluster(3, gpus=8, cpus=96)
    return build.snapshot(nodes=nodes, jobs=[*running, heavy(), *waiting, *shares])
