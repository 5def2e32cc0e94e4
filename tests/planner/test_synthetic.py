from collections import Counter
from datetime import timedelta

import pytest
from build import NOW, job, node
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from planner.models.base import canonical_json
from planner.models.cluster import Node
from planner.models.consistency import inconsistencies
from planner.models.errors import BadInputError
from planner.models.job import ResourceRequest
from planner.models.occupancy import free_capacity
from planner.models.policy import Policy
from planner.models.queue import Queue
from planner.models.selection import refusal
from planner.models.verifier import verify
from planner.sources.draws import Draws
from planner.sources.files import load_snapshot
from planner.sources.first_fit import FirstFit, QuotaUse
from planner.sources.scenario_folder import scenario_files, write_scenario
from planner.sources.synthetic import generate, load_profile
from planner.sources.workload_profile import DurationBand, WorkloadProfile

SMALL = {
    "name": "small",
    "taken_at": "2026-11-20T12:00:00Z",
    "layout": {"region": "north", "nodes_per_rack": 2, "racks_per_zone": 2},
    "nodes": [
        {
            "count": 5,
            "node": {"name": "big", "gpus": {"model": "B", "count": 8}, "cpus": 96, "memory_mib": 9000},
        },
        {
            "count": 3,
            "node": {"name": "old", "gpus": {"model": "O", "count": 2}, "cpus": 8, "memory_mib": 3000},
        },
        {"count": 1, "node": {"name": "cpu", "cpus": 32, "memory_mib": 1000}},
    ],
    "queues": [
        {"queue": {"name": "top"}},
        {"queue": {"name": "a", "parent": "top", "quota": {"nominal": 14, "borrowing_limit": 2}}, "share": 3},
        {
            "queue": {
                "name": "b",
                "parent": "top",
                "quota": {"nominal": 8},
                "gpu_models": {"O": {"nominal": 1}},
            },
            "share": 1,
            "users": 3,
            "priorities": [{"share": 1, "priority": 4, "preemptible": False}, {"share": 2, "priority": 1}],
        },
    ],
    "model_choices": [{"share": 1}, {"share": 1, "gpu_models": ["O"]}],
    "durations": [{"share": 1, "shortest": "2m", "longest": "2h"}],
    "backlog": "6h",
    "running": {"gpu_ratio": 0.5, "ended_ratio": 0.3, "longest_wait": "30m"},
    "jobs": [
        {"count": 20, "request": {"gpus": 1, "cpus": 6, "memory_mib": 500}},
        {"count": 20, "request": {"gpu_milli": 400, "cpus": 1}},
        {"count": 4, "request": {"cpus": 20}},
        {"count": 3, "replicas": 2, "queues": ["a"], "request": {"gpus": 4, "cpus": 30}},
    ],
}


def profile(**changes):
    return WorkloadProfile.model_validate(SMALL | changes)


def running(snapshot):
    return [one for one in snapshot.jobs if one.running]


def held_milli(jobs):
    return sum(one.request.total_gpu_milli * one.gang.maximum for one in jobs)


seeds = st.integers(0, 2**32)


@settings(deadline=None, max_examples=30)
@given(seed=seeds)
def test_what_runs_breaks_no_rule(seed):
    snapshot = generate(profile(), seed=seed)

    assert not list(inconsistencies(snapshot))
    assert not verify(snapshot, Policy(), snapshot.running_placements).violations
    free = free_capacity(snapshot.cluster.nodes, snapshot.running_placements).values()
    assert min(min(left.cpu_milli, left.memory_mib, *left.gpu_milli, 0) for left in free) == 0
    by_name = snapshot.cluster.node_by_name
    for one in running(snapshot):
        assert {refusal(one, by_name[replica.node]) for replica in one.running.replicas} == {None}


@settings(deadline=None, max_examples=10)
@given(seed=seeds)
def test_the_seed_decides_nothing_about_how_much_there_is(seed):
    snapshot = generate(profile(), seed=seed)

    shapes = Counter((one.request.model_dump_json(), one.gang.maximum) for one in snapshot.jobs)
    assert sorted(shapes.values()) == [3, 4, 20, 20]
    assert Counter(one.gpu_model for one in snapshot.cluster.nodes) == {"B": 5, "O": 3, None: 1}


@settings(deadline=None, max_examples=10)
@given(seed=seeds)
def test_running_jobs_hold_the_told_part_of_the_gpus_and_little_more(seed):
    unlimited = [{"queue": {"name": "a"}, "share": 1}]
    jobs = [{"count": 60, "request": {"gpus": 1}}, {"count": 20, "request": {"gpu_milli": 400}}]

    snapshot = generate(profile(queues=unlimited, jobs=jobs), seed=seed)

    assert 23_000 <= held_milli(running(snapshot)) < 24_000


@settings(deadline=None, max_examples=20)
@given(seed=seeds)
def test_times_are_those_of_jobs_that_still_run_or_still_wait(seed):
    snapshot = generate(profile(), seed=seed)

    for one in snapshot.jobs:
        assert 120 <= one.expected_duration <= 7200
        if one.running:
            started = one.running.started_at
            assert started < snapshot.taken_at < started + timedelta(seconds=one.expected_duration)
            assert timedelta(0) <= started - one.submitted_at <= timedelta(minutes=30)
        else:
            assert timedelta(0) <= snapshot.taken_at - one.submitted_at <= timedelta(hours=6)


def test_one_seed_gives_one_snapshot_and_another_seed_another():
    first, again, other = (canonical_json(generate(profile(), seed=seed).document()) for seed in (1, 1, 2))

    assert first == again
    assert first != other


def test_jobs_are_numbered_as_they_were_submitted():
    jobs = generate(profile(), seed=3).jobs

    numbered = sorted(jobs, key=lambda one: one.name.rpartition("-")[2])
    assert [one.submitted_at for one in numbered] == sorted(one.submitted_at for one in jobs)
    assert all(one.name.startswith(f"{one.queue}-") for one in jobs)


def test_a_rack_holds_nodes_of_one_shape_and_a_zone_so_many_racks():
    places = {one.name: (one.region, one.zone, one.rack) for one in generate(profile(), seed=0).cluster.nodes}

    assert places == {
        "big-1": ("north", "z1", "r001"),
        "big-2": ("north", "z1", "r001"),
        "big-3": ("north", "z1", "r002"),
        "big-4": ("north", "z1", "r002"),
        "big-5": ("north", "z2", "r003"),
        "old-1": ("north", "z2", "r004"),
        "old-2": ("north", "z2", "r004"),
        "old-3": ("north", "z3", "r005"),
        "cpu-1": ("north", "z3", "r006"),
    }


def test_a_shape_that_names_queues_comes_from_these_alone():
    gangs = [one for one in generate(profile(), seed=5).jobs if one.gang.maximum > 1]

    assert {one.queue for one in gangs} == {"a"}


def test_nobody_asks_for_a_model_whose_nodes_are_too_small():
    only_old = [{"share": 1, "gpu_models": ["O"]}]

    jobs = generate(profile(model_choices=only_old), seed=0).jobs

    assert all(bool(one.gpu_models) == (0 < one.request.total_gpu_milli <= 1000) for one in jobs)


def test_priorities_and_users_are_those_of_the_queue():
    many = profile(jobs=[{"count": 300, "request": {"cpus": 1}}], running={"gpu_ratio": 0})
    jobs = generate(many, seed=0).jobs

    from_b = [one for one in jobs if one.queue == "b"]
    assert 40 < len(from_b) < 110  # a quarter of 300
    assert {(one.priority, one.preemptible) for one in from_b} == {(4, False), (1, True)}
    assert {one.user for one in from_b} == {"b-u1", "b-u2", "b-u3"}
    assert {(one.priority, one.user) for one in jobs if one.queue == "a"} == {(0, "a-u1")}


def test_jobs_that_ended_leave_holes():
    """Without them first fit leaves no room for one GPU on any node before the last one it used."""
    crowd = {
        "jobs": [{"count": 90, "request": {"gpus": 1}}],
        "model_choices": [{"share": 1}],
        "queues": [{"queue": {"name": "a"}, "share": 1}],
        "nodes": SMALL["nodes"][:1],
    }

    def half_full_nodes(ended_ratio):
        snapshot = generate(profile(**crowd, running={"gpu_ratio": 0.5, "ended_ratio": ended_ratio}), seed=0)
        used = Counter(replica.node for one in running(snapshot) for replica in one.running.replicas)
        return sum(count < 8 for count in used.values())

    assert half_full_nodes(0.0) <= 1
    assert half_full_nodes(0.5) > 1


def test_jobs_are_as_their_shape_says():
    changes = {
        "datasets": [{"name": "images", "elsewhere": 2}],
        "jobs": [
            {
                "count": 5,
                "replicas": {"min": 2, "max": 6},
                "request": {"gpus": 1},
                "gpu_models": {"B": 1, "O": 0.5},
                "locality": {"preferred": "rack"},
                "datasets": ["images"],
                "workload_class": "training",
                "qos": "burstable",
                "labels": {"app": "x"},
            }
        ],
    }

    snapshot = generate(profile(**changes), seed=2)

    assert {(one.gang.minimum, one.gang.maximum) for one in snapshot.jobs} == {(2, 6)}
    assert {one.speed_milli("O") for one in snapshot.jobs} == {500}
    assert {one.locality.preferred for one in snapshot.jobs} == {"rack"}
    assert {(one.datasets, one.workload_class, one.qos) for one in snapshot.jobs} == {
        (("images",), "training", "burstable")
    }
    assert {len(one.running.replicas) for one in running(snapshot)} <= {2, 3, 4, 5, 6}
    assert running(snapshot)


@pytest.mark.parametrize(
    "wish",
    [
        {"locality": {"required": "rack"}},
        {"spread": {"level": "node"}},
        {"anti_affinity": [{"labels": {"app": "x"}}]},
    ],
)
def test_jobs_that_care_about_domains_all_wait(wish):
    jobs = [{"count": 5, "replicas": 2, "request": {"gpus": 1}, **wish}]

    assert not running(generate(profile(jobs=jobs), seed=2))


def test_checkpoints_are_younger_than_their_jobs_and_than_the_oldest():
    told = {"gpu_ratio": 0.8, "oldest_checkpoint": "20m"}
    jobs = running(generate(profile(running=told), seed=4))
    saved = [one.running for one in jobs if one.running.last_checkpoint_at]

    assert saved
    assert all(one.started_at < one.last_checkpoint_at <= NOW for one in saved)
    assert min(one.last_checkpoint_at for one in saved) >= NOW - timedelta(minutes=20)
    assert {one.running.last_checkpoint_at for one in running(generate(profile(), seed=4))} == {None}


def test_the_last_nodes_of_a_shape_are_to_be_drained_and_jobs_run_there():
    nodes = [SMALL["nodes"][0] | {"draining": 4}]
    snapshot = generate(profile(nodes=nodes, model_choices=[{"share": 1}]), seed=0)

    draining = {one.name for one in snapshot.cluster.nodes if one.drain}
    assert draining == {"big-2", "big-3", "big-4", "big-5"}
    assert draining & {replica.node for one in running(snapshot) for replica in one.running.replicas}


def test_nodes_with_a_region_of_their_own_stand_there():
    abroad = SMALL["nodes"][2]["node"] | {"region": "south"}

    snapshot = generate(profile(nodes=[*SMALL["nodes"][:2], {"count": 1, "node": abroad}]), seed=0)

    assert {one.name: one.region for one in snapshot.cluster.nodes}["cpu-1"] == "south"
    assert {one.region for one in snapshot.cluster.nodes} == {"north", "south"}


def test_what_is_said_of_the_cluster_is_in_the_snapshot():
    told = {
        "pools": [{"name": "cloud", "max": 3, "template": {"name": "cloud", "cpus": 8}}],
        "overcommit": {"burstable": {"cpus": 2}},
        "rack_power": [{"rack": "r001", "zone": "z1", "region": "north", "watts": 9000}],
    }

    cluster = generate(profile(**told), seed=0).cluster

    assert [pool.maximum for pool in cluster.pools] == [3]
    assert cluster.overcommit["burstable"].cpu_milli == 2000
    assert [cap.watts for cap in cluster.rack_power] == [9000]


def test_a_queue_without_quota_left_starts_nothing():
    queues = [{"queue": {"name": "a", "quota": {"nominal": 1}}, "share": 1}]
    jobs = [{"count": 9, "request": {"gpu_milli": 400}}]

    snapshot = generate(profile(queues=queues, jobs=jobs), seed=0)

    assert len(running(snapshot)) == 2


def test_a_model_quota_limits_what_runs_on_that_model():
    quota = QuotaUse((Queue(name="a", gpu_models={"O": {"nominal": 1}}),))

    assert quota.admit("a", "O", 1000)
    assert not quota.admit("a", "O", 100)
    assert quota.admit("a", "B", 5000)


def test_a_refused_job_uses_no_quota():
    quota = QuotaUse((Queue(name="top", quota={"nominal": 2}), Queue(name="a", parent="top")))

    assert not quota.admit("a", None, 3000)
    assert quota.admit("a", None, 2000)


def test_first_fit_goes_through_the_nodes_in_their_order():
    fit = FirstFit([node("n1", gpus=2), node("n0", gpus=2)])
    places = []
    while replicas := fit.find(job(gpus=1), replicas=1):
        fit.take(replicas)
        places += [(replica.node, replica.gpus[0].index) for replica in replicas]

    assert places == [("n1", 0), ("n1", 1), ("n0", 0), ("n0", 1)]


def test_first_fit_puts_a_gang_on_one_model_or_nowhere():
    nodes = [node("a", model="A", gpus=2), node("b", model="B", gpus=2), node("a2", model="A", gpus=2)]
    fit = FirstFit(nodes)

    assert {replica.node for replica in fit.find(job(gpus=2), replicas=2)} == {"a", "a2"}
    assert fit.find(job(gpus=2), replicas=3) is None


def test_a_gang_that_does_not_fit_keeps_nothing_from_smaller_ones():
    fit = FirstFit([node("n0", gpus=8), node("n1", gpus=4)])

    assert fit.find(job(gpus=4), replicas=4) is None
    assert len(fit.find(job(gpus=4), replicas=3)) == 3


def test_first_fit_takes_idle_mig_instances_of_the_layout_and_makes_none():
    halves = {"index": 1, "mig": [{"profile": "3g.40gb", "start": 0}, {"profile": "3g.40gb", "start": 4}]}
    gpus = {"model": "A100-80GB", "count": 2, "details": [{"index": 0, "mig": []}, halves]}
    fit = FirstFit([Node.model_validate({"name": "n0", "gpus": gpus})])
    one = job().model_copy(update={"request": ResourceRequest(mig={"3g.40gb": 1})})

    (first, second), third = fit.find(one, replicas=2), fit.find(one, replicas=3)
    fit.take((first, second))

    assert [(held.index, held.start) for held in (*first.gpus, *second.gpus)] == [(1, 0), (1, 4)]
    assert third is None
    assert fit.find(one, replicas=1) is None


def test_draws_are_the_same_on_every_machine():
    draws = Draws(7)

    assert [draws.below(1000) for _ in range(6)] == [323, 150, 650, 72, 535, 365]
    assert draws.shuffled("abcdefgh") == list("begfchda")


def test_a_draw_between_two_bounds_reaches_both():
    draws = Draws(0)

    assert {draws.between(1, 3) for _ in range(100)} == {1, 2, 3}


def test_shares_are_how_often_an_entry_is_drawn():
    bands = [DurationBand(share=share, shortest=60, longest=60 + share) for share in (0, 1, 3)]
    draws = Draws(1)

    drawn = Counter(draws.by_share(bands).share for _ in range(4000))

    assert set(drawn) == {1, 3}
    assert 900 < drawn[1] < 1100


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"queues": [{"queue": {"name": "a"}}]}, "expected a share above 0 in queues, found none"),
        ({"durations": [{"share": 1, "shortest": "2h", "longest": "1h"}]}, "expected shortest <= longest"),
        (
            {"jobs": [{"count": 1, "request": {"mig": {"1g.10gb": 1}}}]},
            "asks for profile '1g.10gb', which no GPU model in the cluster offers",
        ),
        (
            {"jobs": [{"count": 1, "queues": ["top"], "request": {}}]},
            "expected queues with a share in jobs[0].queues, found top",
        ),
        (
            {"queues": [{"queue": {"name": "a", "parent": "z"}, "share": 1}]},
            "queue 'a' has parent 'z', which is no queue of the snapshot",
        ),
        (
            {"rack_power": [{"rack": "r9", "watts": 9}]},
            "a power cap for rack 'r9', in which no node stands",
        ),
        (
            {"jobs": [{"count": 1, "request": {}, "datasets": ["images"]}]},
            "job 'jobs-0' reads dataset 'images', which is none of the cluster's",
        ),
        (
            {"nodes": [SMALL["nodes"][0] | {"draining": 6}]},
            "expected at most 5 draining nodes, found 6",
        ),
        ({"nodes": [SMALL["nodes"][0]] * 2}, "node 'big' is given a second time; expected each node once"),
    ],
)
def test_a_profile_that_cannot_be_drawn_from_is_refused(changes, message):
    with pytest.raises(ValidationError) as caught:
        profile(**changes)

    assert message in str(caught.value)


def test_a_bad_profile_file_is_refused_with_its_line(tmp_path):
    path = tmp_path / "profile.yaml"
    path.write_text(
        "name: x\n"
        "taken_at: 2026-11-20T12:00:00Z\n"
        "nodes:\n- {count: 0, node: {name: n}}\n"
        "queues:\n- {queue: {name: q}, share: 1}\n"
        "jobs: []\n"
        "backlog: sometimes\n"
    )

    with pytest.raises(BadInputError) as caught:
        load_profile(path)

    assert [problem.place for problem in caught.value.problems] == [f"{path}:4", f"{path}:8"]


def test_a_written_scenario_is_read_back_as_the_same_snapshot(tmp_path):
    snapshot = generate(profile(), seed=11)

    write_scenario(snapshot, tmp_path / "new" / "folder")

    assert load_snapshot(str(tmp_path / "new" / "folder")) == snapshot


def test_a_scenario_without_jobs_is_read_back_too(tmp_path):
    snapshot = generate(profile(jobs=[]), seed=0)

    write_scenario(snapshot, tmp_path)

    assert load_snapshot(str(tmp_path)) == snapshot
    assert snapshot.taken_at == NOW


def test_each_node_and_job_has_a_line_of_its_own():
    snapshot = generate(profile(), seed=0)

    files = scenario_files(snapshot)

    assert len(files["cluster.json"].splitlines()) == 2 + len(snapshot.cluster.nodes)
    assert len(files["jobs.json"].splitlines()) == 2 + len(snapshot.jobs)
