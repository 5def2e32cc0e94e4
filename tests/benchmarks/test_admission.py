"""Admission instances: racks, gangs, tenants and weights as the evaluations have them."""

import pytest

from benchmarks.admission import ADMISSIONS, Admission, policy_of, snapshot_of
from benchmarks.instances import Instance
from gpuplan.models.cluster import Level
from gpuplan.models.validation.checks import inconsistencies
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.targets.to_target import target_of

SMALL = Admission(gpus=2_560, jobs=400)


@pytest.fixture(scope="module")
def snapshot():
    return snapshot_of(SMALL, seed=1)


@pytest.fixture(scope="module")
def problem(snapshot):
    return build_problem(snapshot, policy_of())


def waiting(snapshot):
    return [job for job in snapshot.jobs if not job.running]


def test_is_consistent(snapshot):
    assert not list(inconsistencies(snapshot))


@pytest.mark.slow
def test_is_the_same_from_the_same_seed(snapshot):
    assert snapshot_of(SMALL, seed=1).fingerprint() == snapshot.fingerprint()
    assert snapshot_of(SMALL, seed=2).fingerprint() != snapshot.fingerprint()


def test_has_racks_of_32_nodes_of_one_model(snapshot):
    racks = {}
    for node in snapshot.cluster.nodes:
        racks.setdefault(node.rack, []).append(node.gpu_model)
    assert {len(models) for models in racks.values()} == {32}
    assert all(len(set(models)) == 1 for models in racks.values())
    assert len({models[0] for models in racks.values()}) == 3


def test_a_quarter_of_the_nodes_is_in_part_busy(snapshot):
    busy = {replica.node for each in snapshot.running_placements for replica in each.replicas}
    assert len(busy) / len(snapshot.cluster.nodes) == pytest.approx(0.25, abs=0.08)
    held = [len(each.replicas[0].gpus) for each in snapshot.running_placements]
    assert set(held) == {1, 2, 4}


@pytest.mark.slow
def test_gangs_are_powers_of_two_up_to_512_gpus():
    sizes = {
        job.request.gpus * job.gang.maximum for job in waiting(snapshot_of(Admission(2_560, 5_000), seed=1))
    }
    assert sizes == {2**power for power in range(10)}


def test_gangs_of_several_nodes_are_in_one_rack_if_they_fit(snapshot):
    for job in waiting(snapshot):
        assert (job.locality.required is Level.RACK) == (1 < job.gang.maximum <= 32)


def test_jobs_allow_one_or_two_models(snapshot):
    assert {len(job.gpu_models) for job in waiting(snapshot)} == {1, 2}


def test_twenty_tenants_have_quotas_of_their_own(snapshot):
    assert len(snapshot.queues) == 20
    assert all(queue.quota.borrowing_limit == 0 for queue in snapshot.queues)
    nominal = sum(queue.quota.nominal for queue in snapshot.queues) / 1000
    assert nominal == pytest.approx(1.25 * SMALL.gpus, rel=0.05)


def test_hardly_two_jobs_are_alike(snapshot, problem):
    """A few are larger than their tenant's quota."""
    jobs = sum(len(each.jobs) for each in problem.classes)
    assert jobs >= 0.95 * len(waiting(snapshot))
    assert len(problem.classes) >= 0.98 * jobs


def test_no_job_can_be_disturbed(problem):
    assert not problem.incumbents


def test_cpu_is_enough_for_all_jobs(snapshot):
    for job in waiting(snapshot):
        node = snapshot.cluster.nodes[0]
        assert job.request.cpu_milli * 8 <= node.cpu_milli * job.request.gpus
        assert job.request.memory_mib * 8 <= node.memory_mib * job.request.gpus


@pytest.mark.slow
def test_greedy_breaks_no_rule(snapshot, problem):
    target = target_of(greedy(problem), snapshot.running_placements)
    verification = verify(snapshot, policy_of(), target.placements)
    assert not verification.violations
    assert verification.objective > 0


def test_eight_slots_are_of_an_hour():
    horizon = Instance("10K x 1,000", seconds=5, slots=8).policy().horizon
    assert (horizon.slots, horizon.length) == (8, 3600)


def test_an_instance_has_its_time_limit():
    assert Instance("10K x 1,000", seconds=5).policy().budget.time_limit_ms == 5_000
    assert Instance("S", seconds=2.5).policy().budget.time_limit_ms == 2_500


@pytest.mark.parametrize("name", ADMISSIONS)
def test_an_instance_says_how_large_it_is(name):
    gpus, jobs = name.replace("K", "000").replace(",", "").split(" x ")
    assert ADMISSIONS[name] == Admission(int(gpus), int(jobs))
