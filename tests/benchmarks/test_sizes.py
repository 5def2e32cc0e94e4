"""The made-up sizes: as large as they say, of every kind of job, and the same from the same seed."""

import pytest

from benchmarks.sizes import SIZES, made_up, profile_of
from gpuplan.models.cluster import Level
from gpuplan.models.units import MILLI
from gpuplan.models.validation.checks import inconsistencies

SEEDS = (1, 2)


def running(snapshot):
    return [job for job in snapshot.jobs if job.running]


def waiting(snapshot):
    return [job for job in snapshot.jobs if not job.running]


@pytest.fixture(scope="module")
def small():
    return made_up(SIZES["S"], seed=1)


@pytest.fixture(scope="module")
def medium():
    return made_up(SIZES["M"], seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_has_the_nodes_it_says(size):
    profile = profile_of(SIZES[size])
    assert sum(shape.count for shape in profile.nodes) == SIZES[size].nodes
    assert {shape.node.gpu_count for shape in profile.nodes} == {8}


@pytest.mark.slow
@pytest.mark.parametrize("size", ["M", "L"])
def test_nearly_as_many_jobs_wait_as_it_says(size):
    snapshot = made_up(SIZES[size], seed=1)
    assert len(waiting(snapshot)) == pytest.approx(SIZES[size].jobs, rel=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_three_of_four_gpus_are_held(seed):
    snapshot = made_up(SIZES["M"], seed)
    held = sum(replica.quota_milli for each in snapshot.running_placements for replica in each.replicas)
    gpus = sum(node.gpu_count for node in snapshot.cluster.nodes)
    assert 0.7 <= held / (MILLI * gpus) <= 0.8


@pytest.mark.slow
def test_the_queue_asks_for_several_times_what_is_left(medium):
    asked = sum(job.request.total_gpu_milli * job.gang.maximum for job in waiting(medium))
    gpus = MILLI * sum(node.gpu_count for node in medium.cluster.nodes)
    assert asked > 2 * gpus / 4


@pytest.mark.parametrize("seed", SEEDS)
def test_is_consistent(seed):
    assert not list(inconsistencies(made_up(SIZES["S"], seed)))


def test_is_the_same_from_the_same_seed(small):
    assert made_up(SIZES["S"], seed=1).fingerprint() == small.fingerprint()


def test_is_another_from_another_seed(small):
    assert made_up(SIZES["S"], seed=2).fingerprint() != small.fingerprint()


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(lambda job: job.request.gpu_milli, id="share"),
        pytest.param(lambda job: job.request.mig, id="mig"),
        pytest.param(lambda job: not job.request.needs_gpu, id="cpu only"),
        pytest.param(
            lambda job: job.request.cpu_milli > 16 * MILLI * job.request.gpus > 0, id="heavy on cpu"
        ),
        pytest.param(lambda job: job.gang.maximum > 1 and job.locality.required is Level.RACK, id="one rack"),
        pytest.param(lambda job: job.gang.maximum > 1 and job.locality.required is None, id="any racks"),
        pytest.param(lambda job: len(job.gpu_models) == 2, id="two models"),
    ],
)
def test_has_every_kind_of_job(medium, kind):
    assert any(kind(job) for job in waiting(medium))


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_its_largest_gang_is_of_so_many_nodes(size):
    profile = profile_of(SIZES[size])
    assert max(shape.gang.maximum for shape in profile.jobs) == SIZES[size].largest


@pytest.mark.slow
def test_gangs_bound_to_a_rack_fit_into_one():
    profile = profile_of(SIZES["XL"])
    bound = [shape.gang.maximum for shape in profile.jobs if shape.locality.required]
    assert max(bound) == profile.layout.nodes_per_rack
