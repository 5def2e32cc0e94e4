"""Consistency: each check finds its contradiction at the right place, and none where there is none."""

from __future__ import annotations

from datetime import timedelta

import pytest
from build import NOW, cluster, job, node, pool, queue, replica
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.models.cluster import Cluster, Gpu, MigInstance
from planner.models.consistency import CHECKS, Section, inconsistencies
from planner.models.inconsistency import DATASETS, NODES, POOLS, RACK_POWER
from planner.models.job import ResourceRequest, Running
from planner.models.near_miss import NearMisses, listed
from planner.models.placement import MigSlice, Replica
from planner.models.snapshot import Snapshot

HOUR = timedelta(hours=1)


def world(*, nodes=None, jobs=(), queues=None, **about):
    """A snapshot in the order given."""
    return Snapshot(
        taken_at=NOW,
        cluster=Cluster(nodes=tuple(cluster() if nodes is None else nodes), **about),
        queues=tuple((queue(),) if queues is None else queues),
        jobs=tuple(jobs),
    )


def found(snapshot, **more):
    return [(one.location, one.message) for one in inconsistencies(snapshot, **more)]


def only(snapshot):
    """The one inconsistency of a snapshot."""
    (one,) = inconsistencies(snapshot)
    return one


def mig_node(*instances, name="m0", model="H100-80GB", index=0):
    made = node(name, model=model)
    detail = Gpu(
        index=index, mig=tuple(MigInstance(profile=profile, start=start) for profile, start in instances)
    )
    return made.model_copy(update={"gpus": made.gpus.model_copy(update={"details": (detail,)})})


def details(*gpus):
    made = node("n0")
    return made.model_copy(update={"gpus": made.gpus.model_copy(update={"details": gpus})})


def slices(*held, on="m0", index=0):
    gpus = tuple(MigSlice(index=index, profile=profile, start=start) for profile, start in held)
    return Replica(node=on, gpus=gpus)


def test_a_snapshot_without_contradictions_has_none():
    nodes = [*cluster(), mig_node(("3g.40gb", 0), ("3g.40gb", 4))]
    jobs = [
        job("a", gpus=2, at=[replica("n0", gpus=[0, 1]), replica("n1", gpus=[0, 1])], replicas=(1, 2)),
        job("b", milli=500, at=[replica("n0", gpus=[2], milli=500)]),
        job("c", milli=500, at=[replica("n0", gpus=[2], milli=500)]),
        job("d", at=[slices(("3g.40gb", 4))]),
        job("e", queue="top"),
        job("f").model_copy(update={"request": ResourceRequest(mig={"1g.10gb": 2})}),
    ]

    assert found(world(nodes=nodes, jobs=jobs, queues=[queue("top"), queue("q", parent="top")])) == []


@pytest.mark.parametrize(
    ("snapshot", "location", "earlier"),
    [
        (
            world(nodes=[*cluster(2), node("n0")]),
            (*NODES, 2, "name"),
            (*NODES, 0, "name"),
        ),
        (world(queues=[queue(), queue()]), ("queues", 1, "name"), ("queues", 0, "name")),
        (world(jobs=[job("a"), job("b"), job("a")]), ("jobs", 2, "name"), ("jobs", 0, "name")),
        (world(pools=[pool("a"), pool("a")]), (*POOLS, 1, "name"), (*POOLS, 0, "name")),
        (world(datasets=[{"name": "d"}, {"name": "d"}]), (*DATASETS, 1, "name"), (*DATASETS, 0, "name")),
    ],
)
def test_a_name_given_twice_is_told_at_the_second_with_the_first(snapshot, location, earlier):
    one = only(snapshot)

    assert (one.location, one.contradicts) == (location, earlier)
    assert "is given a second time" in one.message


def test_a_node_a_queue_and_a_job_may_share_a_name():
    assert found(world(nodes=[node("q")], queues=[queue("q")], jobs=[job("q", queue="q")])) == []


def test_of_two_entries_with_one_name_the_first_counts():
    runs = job("a", at=[replica("n0", gpus=[7])])

    assert len(found(world(nodes=[node("n0", gpus=8), node("n0", gpus=4)], jobs=[runs]))) == 1


def test_details_of_a_gpu_the_node_does_not_have_are_told():
    assert found(world(nodes=[details(Gpu(index=8))])) == [
        (
            (*NODES, 0, "gpus", "details", 0, "index"),
            "node 'n0' has details of gpu 8; expected one of its 8 GPUs, 0 to 7.",
        )
    ]


def test_details_of_one_gpu_given_twice_are_told():
    one = only(world(nodes=[details(Gpu(index=7), Gpu(index=1), Gpu(index=7))]))

    assert one.location == (*NODES, 0, "gpus", "details", 2, "index")
    assert one.contradicts == (*NODES, 0, "gpus", "details", 0, "index")


def test_an_illegal_mig_layout_is_told_with_its_faults():
    bad = mig_node(("3g.40gb", 0), ("3g.40gb", 4), ("1g.10gb", 6))

    assert found(world(nodes=[bad])) == [
        (
            (*NODES, 0, "gpus", "details", 0, "mig"),
            (
                "node 'm0' has an illegal MIG layout on gpu 0 (H100-80GB): "
                "1g.10gb at slice 6: memory slice 6 belongs to 3g.40gb at slice 4."
            ),
        )
    ]


def test_mig_mode_on_a_model_without_known_geometry_is_told():
    (one,) = found(world(nodes=[mig_node(model="T4")]))

    assert one == (
        (*NODES, 0, "gpus", "details", 0, "mig"),
        (
            "node 'm0' has gpu 0 in MIG mode; expected none on GPU model 'T4', "
            "which is not known to have MIG.\n"
            "  Leave `mig` out, or use NVIDIA's name of the model."
        ),
    )


def test_a_template_of_a_pool_is_judged_as_a_node_is():
    template = mig_node(("3g.40gb", 2), index=1)
    beyond = details(Gpu(index=8))

    assert found(world(pools=[pool("a", template=template), pool("b", template=beyond)])) == [
        (
            (*POOLS, 1, "template", "gpus", "details", 0, "index"),
            "the template of pool 'b' has details of gpu 8; expected one of its 8 GPUs, 0 to 7.",
        ),
        (
            (*POOLS, 0, "template", "gpus", "details", 0, "mig"),
            (
                "the template of pool 'a' has an illegal MIG layout on gpu 1 (H100-80GB): "
                "3g.40gb at slice 2: may start at 0, 4."
            ),
        ),
    ]


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ({"ready": False}, "is not ready"),
        ({"cordoned": True}, "is cordoned"),
        ({"drain": True}, "is to be drained"),
    ],
)
def test_a_template_that_takes_no_jobs_is_told(flag, words):
    assert found(world(pools=[pool("a", template=node("t", **flag))])) == [
        (
            (*POOLS, 0, "template", *flag),
            f"pool 'a' has a template that {words}; expected one that takes jobs.",
        )
    ]


def test_a_template_whose_name_leaves_no_room_for_a_number_is_told():
    assert found(world(pools=[pool("a", template=node("t" * 241)), pool("b", template=node("t" * 240))])) == [
        (
            (*POOLS, 0, "template", "name"),
            (
                "pool 'a' has a template with a name of 241 characters; expected at most 240, since "
                "new nodes are named after it with a number."
            ),
        )
    ]


def test_a_node_of_an_unknown_pool_is_told_with_a_near_one():
    nodes = [node("a", pool="spot"), node("b", pool="sport"), node("c")]

    assert found(world(nodes=nodes, pools=[pool("spot"), pool("base")])) == [
        (
            (*NODES, 1, "pool"),
            (
                "node 'b' is of pool 'sport', which is no pool of the cluster.\n"
                "  Known: base, spot.\n"
                "  Maybe 'spot' was meant."
            ),
        )
    ]


def test_where_no_pools_are_described_a_pool_is_just_a_label():
    assert found(world(nodes=[node("a", pool="spot")])) == []


def test_a_pool_with_more_nodes_than_its_maximum_is_a_fact():
    nodes = [node(name, pool="spot") for name in "abc"]

    assert found(world(nodes=nodes, pools=[pool("spot", most=1)])) == []


def test_a_job_that_reads_an_unknown_dataset_is_told_with_a_near_one():
    jobs = [job("a", datasets=["corpus", "korpus"])]

    assert found(world(jobs=jobs, datasets=[{"name": "corpus"}])) == [
        (
            ("jobs", 0, "datasets", 1),
            (
                "job 'a' reads dataset 'korpus', which is none of the cluster's.\n"
                "  Known: corpus.\n"
                "  Maybe 'corpus' was meant."
            ),
        )
    ]
    ((_, message),) = found(world(jobs=[job("a", datasets=["x"])]))
    assert message.endswith("  Known: none.")


def test_a_power_cap_for_a_rack_without_nodes_is_told_with_a_near_one():
    nodes = [node("a", rack="r12", zone="z1", region="eu"), node("b", rack="r13")]
    caps = [
        {"rack": "r12", "zone": "z1", "region": "eu", "watts": 9},
        {"rack": "r12", "zone": "z1", "watts": 9},
        {"rack": "r21", "zone": "z1", "region": "eu", "watts": 9},
    ]

    assert found(world(nodes=nodes, rack_power=caps)) == [
        (
            (*RACK_POWER, 1, "rack"),
            (
                "there is a power cap for rack 'z1/r12', in which no node stands.\n"
                "  Known: eu/z1/r12, r13.\n"
                "  Maybe 'eu/z1/r12' was meant."
            ),
        ),
        (
            (*RACK_POWER, 2, "rack"),
            (
                "there is a power cap for rack 'eu/z1/r21', in which no node stands.\n"
                "  Known: eu/z1/r12, r13.\n"
                "  Maybe 'eu/z1/r12' was meant."
            ),
        ),
    ]


def test_a_power_cap_may_wait_for_nodes_of_a_pool():
    cap = {"rack": "r9", "watts": 9}

    assert found(world(pools=[pool(template=node("t", rack="r9"))], rack_power=[cap])) == []


def test_a_second_power_cap_for_a_rack_is_told():
    one = only(world(nodes=[node("a", rack="r")], rack_power=[{"rack": "r", "watts": w} for w in (5, 6)]))

    assert one.message == "there is a power cap for rack 'r' a second time; expected each rack once."
    assert (one.location, one.contradicts) == ((*RACK_POWER, 1, "rack"), (*RACK_POWER, 0, "rack"))


def test_a_guarantee_beyond_a_limit_is_told():
    quota = {"nominal": 2, "borrowing_limit": 0.5, "guarantee": 3}
    queues = [
        queue("top", nominal=4, guarantee=4.001),
        queue("q", parent="top").model_validate(
            {
                "name": "q",
                "parent": "top",
                "gpu_models": {"T4": quota, "H100-80GB": quota | {"guarantee": 2.5}},
            }
        ),
    ]

    assert found(world(queues=queues)) == [
        (
            ("queues", 0, "quota", "guarantee"),
            "queue 'top' is guaranteed 4.001 GPUs; expected at most 4, which is all that it may ever hold.",
        ),
        (
            ("queues", 1, "gpu_models", "T4", "guarantee"),
            (
                "queue 'q' is guaranteed 3 GPUs of model T4; expected at most 2.5, which is all that it "
                "may ever hold."
            ),
        ),
    ]


def test_a_guarantee_may_count_on_what_a_queue_borrows_and_on_those_below():
    queues = [
        queue("top", nominal=1, guarantee=5),
        queue("q", parent="top", nominal=4, guarantee=9),
        queue("r", parent="top", nominal=0, borrowing=2, guarantee=2),
    ]

    assert found(world(queues=queues)) == []


@pytest.mark.parametrize(
    "queues",
    [
        [queue("q", parent="p", nominal=1, guarantee=2)],
        [queue("q", parent="r", nominal=1, guarantee=2), queue("r", parent="q")],
        [queue("q", nominal=1, guarantee=2), queue("q", nominal=1, guarantee=2)],
    ],
)
def test_guarantees_are_not_judged_while_the_queues_are_no_tree(queues):
    assert not any("guaranteed" in message for _, message in found(world(queues=queues)))


def test_an_unknown_parent_is_told_with_a_near_one():
    assert found(world(queues=[queue("research"), queue("q", parent="reserch")])) == [
        (
            ("queues", 1, "parent"),
            (
                "queue 'q' has parent 'reserch', which is no queue of the snapshot.\n"
                "  Known: q, research.\n"
                "  Maybe 'research' was meant."
            ),
        )
    ]


@pytest.mark.parametrize(
    ("parents", "position", "path"),
    [
        ({"q": "q"}, 0, "q -> q"),
        ({"c": "a", "b": "c", "a": "b"}, 2, "a -> b -> c -> a"),
        ({"A": "b", "b": "a", "a": "b"}, 2, "a -> b -> a"),
    ],
)
def test_a_cycle_of_queues_is_told_once_and_printed_from_its_first_name(parents, position, path):
    one = only(world(queues=[queue(name, parent=parent) for name, parent in parents.items()]))

    assert one.location == ("queues", position, "parent")
    assert f"is above itself: {path}; expected a tree." in one.message


def test_two_cycles_are_told_both():
    queues = [queue(name, parent=parent) for name, parent in ("ab", "ba", "cd", "dc")]

    assert [location for location, _ in found(world(queues=queues))] == [
        ("queues", 0, "parent"),
        ("queues", 2, "parent"),
    ]


def test_a_long_cycle_is_cut_short():
    names = [f"q{number:03}" for number in range(500)]
    queues = [queue(name, parent=names[number - 1]) for number, name in enumerate(names)]

    one = only(world(queues=queues))

    assert len(one.message) < 300
    assert "q000 -> q499 -> q498" in one.message


def test_a_job_in_an_unknown_queue_is_told():
    ((location, message),) = found(world(jobs=[job("ok"), job("a", queue="p")]))

    assert location == ("jobs", 1, "queue")
    assert message == "job 'a' is in queue 'p', which is no queue of the snapshot.\n  Known: q."


def test_a_job_may_wait_in_a_queue_that_has_children():
    assert found(world(queues=[queue("q"), queue("r", parent="q")], jobs=[job("a", queue="q")])) == []


@pytest.mark.parametrize(
    ("profile", "fault"),
    [
        ("2g.10gb", "which no GPU model in the cluster offers.\n  Offered: 1g.10gb, "),
        ("2g20gb", "which is none.\n  Offered: 1g.10gb, "),
    ],
)
def test_a_profile_that_nothing_offers_is_told_with_a_near_one(profile, fault):
    wants = job("a").model_copy(update={"request": ResourceRequest(mig={profile: 1})})

    ((location, message),) = found(world(jobs=[wants]))

    assert location == ("jobs", 0, "request", "mig", profile)
    assert f"job 'a' asks for profile '{profile}', {fault}" in message
    assert message.endswith("(H100-80GB).\n  Maybe '2g.20gb' was meant.")


def test_a_profile_in_a_cluster_without_mig_is_told():
    wants = job("a").model_copy(update={"request": ResourceRequest(mig={"1g.10gb": 1})})

    ((_, message),) = found(world(nodes=[node("n0", model="T4")], jobs=[wants]))

    assert message.endswith("Offered: none, since no GPU model in the cluster is known to have MIG.")


def test_a_profile_that_only_new_nodes_would_offer_is_offered():
    wants = job("a", mig={"1g.18gb": 1})

    assert len(found(world(jobs=[wants]))) == 1
    assert found(world(jobs=[wants], pools=[pool(template=node("t", model="H200-141GB"))])) == []


def test_a_gpu_model_that_the_cluster_lacks_is_no_contradiction():
    assert found(world(jobs=[job("a", gpus=1, gpu_models={"B200-180GB": 1})])) == []


def ran(**times):
    return job("a", waited=2 * HOUR).model_copy(
        update={"running": Running(**{"started_at": NOW - HOUR, "replicas": (replica("n0"),)} | times)}
    )


@pytest.mark.parametrize(
    ("wrong", "location"),
    [
        (job("a", waited=-HOUR), ("submitted_at",)),
        (job("a", deadline=NOW - HOUR), ("deadline",)),
        (ran(started_at=NOW + HOUR), ("running", "started_at")),
        (ran(last_checkpoint_at=NOW + HOUR), ("running", "last_checkpoint_at")),
    ],
)
def test_a_time_out_of_order_is_told(wrong, location):
    assert only(world(jobs=[wrong])).location == ("jobs", 0, *location)


@pytest.mark.parametrize(
    ("ready_at", "legal"), [(None, False), (NOW, False), (NOW + timedelta(seconds=1), True)]
)
def test_a_job_may_start_later_only_where_its_node_is_still_coming(ready_at, legal):
    nodes = [node("n0", ready_at=ready_at), node("n1", ready_at=NOW + HOUR)]
    soon = ran(started_at=NOW + timedelta(minutes=3))

    assert (found(world(nodes=nodes, jobs=[soon])) == []) == legal


def test_one_node_that_is_still_coming_keeps_a_gang_waiting():
    gang = ran(started_at=NOW + HOUR, replicas=(replica("n0"), replica("n1")))
    gang = gang.model_copy(update={"gang": job(replicas=2).gang})

    assert found(world(nodes=[node("n0"), node("n1", ready_at=NOW + HOUR)], jobs=[gang])) == []


def test_times_at_the_instant_of_the_snapshot_are_in_order():
    assert found(world(jobs=[ran(started_at=NOW, last_checkpoint_at=NOW), job("b", deadline=NOW)])) == []


def test_a_deadline_that_has_passed_is_no_contradiction():
    assert found(world(jobs=[job("a", waited=2 * HOUR, deadline=NOW - HOUR)])) == []


@pytest.mark.parametrize(
    ("gang", "count", "message"),
    [
        ((2, 4), 1, "job 'a' runs with 1 replica; expected 2 to 4, as its `replicas` say."),
        ((2, 4), 5, "job 'a' runs with 5 replicas; expected 2 to 4, as its `replicas` say."),
        (1, 2, "job 'a' runs with 2 replicas; expected 1, as its `replicas` say."),
    ],
)
def test_a_running_gang_outside_its_range_is_told(gang, count, message):
    runs = job("a", replicas=gang, at=[replica("n0")] * count)

    assert found(world(jobs=[runs])) == [(("jobs", 0, "running", "replicas"), message)]


def test_a_replica_on_an_unknown_node_is_told_with_a_near_one():
    runs = job("a", replicas=2, at=[replica("h100-01"), replica("h10-01")])

    assert found(world(nodes=[node("h100-01")], jobs=[runs])) == [
        (
            ("jobs", 0, "running", "replicas", 1, "node"),
            "job 'a' runs on node 'h10-01', which the cluster does not have.\n  Maybe 'h100-01' was meant.",
        )
    ]


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        (node("n0", gpus=4), "one of its 4 GPUs, 0 to 3"),
        (node("n0", gpus=1), "gpu 0, its only one"),
        (node("n0", gpus=0), "no GPU, as the node has none"),
    ],
)
def test_a_replica_on_a_gpu_that_is_not_there_is_told(on, expected):
    runs = job("a", gpus=1, at=[replica("n0", gpus=[4])])

    assert found(world(nodes=[on], jobs=[runs])) == [
        (
            ("jobs", 0, "running", "replicas", 0, "gpus", 0, "index"),
            f"job 'a' runs on gpu 4 of node 'n0'; expected {expected}.",
        )
    ]


@pytest.mark.parametrize(
    ("shares", "wrong"),
    [
        ([("a", 1000), ("b", 1)], True),
        ([("a", 1000), ("b", 1000)], True),
        ([("a", 600), ("b", 300), ("c", 101)], True),
        ([("a", 600), ("b", 300), ("c", 100)], False),
        ([("a", 500), ("b", 500)], False),
    ],
)
def test_shares_of_one_gpu_beyond_the_whole_are_told_once(shares, wrong):
    jobs = [job(name, at=[replica("n1", gpus=[3], milli=milli)]) for name, milli in shares]

    told = list(inconsistencies(world(jobs=jobs)))

    assert len(told) == wrong
    if wrong:
        assert told[0].location == ("jobs", len(jobs) - 1, "running", "replicas", 0, "gpus", 0)
        assert told[0].contradicts == ("jobs", 0, "running", "replicas", 0, "gpus", 0)
        assert f"Held by {', '.join(name for name, _ in shares)}." in told[0].message


def test_a_gpu_that_one_job_holds_twice_is_told():
    runs = job("a", gpus=1, replicas=2, at=[replica("n0", gpus=[0]), replica("n0", gpus=[0])])

    assert only(world(jobs=[runs])).message == (
        "job 'a' holds gpu 0 of node 'n0', which is then held 2 times; expected at most once. Held by a."
    )


def test_the_same_gpu_of_two_nodes_is_held_once_each():
    jobs = [job("a", at=[replica("n0", gpus=[0])]), job("b", at=[replica("n1", gpus=[0])])]

    assert found(world(jobs=jobs)) == []


def test_a_mig_instance_held_by_two_is_told():
    jobs = [job(name, at=[slices(("3g.40gb", 4))]) for name in "ab"]

    one = only(world(nodes=[mig_node(("3g.40gb", 4))], jobs=jobs))

    assert one.message == (
        "job 'b' holds the MIG instance at slice 4 of gpu 0 of node 'm0', which is then held 2 times; "
        "expected at most once. Held by a, b."
    )


@pytest.mark.parametrize(
    ("on", "held", "fault"),
    [
        (
            mig_node(("3g.40gb", 4)),
            slices(("3g.40gb", 0)),
            "expected one of its instances: 3g.40gb at slice 4.",
        ),
        (mig_node(), slices(("3g.40gb", 0)), "expected one of its instances: it has none."),
        (node("m0"), slices(("3g.40gb", 0)), "expected `mig` among the details of that GPU."),
        (node("m0"), slices(("nonsense", 0)), "expected `mig` among the details of that GPU."),
        (mig_node(("3g.40gb", 4)), replica("m0", gpus=[0]), "expected one of its instances."),
    ],
)
def test_a_use_of_a_gpu_that_its_mig_mode_rules_out_is_told(on, held, fault):
    one = only(world(nodes=[on], jobs=[job("a", at=[held])]))

    assert one.location == ("jobs", 0, "running", "replicas", 0, "gpus", 0)
    assert one.message.endswith(fault)


def test_a_node_that_holds_more_cpu_than_it_has_is_no_contradiction():
    assert found(world(jobs=[job("a", at=[replica("n0", cpus=10_000)])])) == []


def test_a_job_whose_replicas_hold_other_than_it_asks_for_is_no_contradiction():
    assert found(world(jobs=[job("a", gpus=8, at=[replica("n0", gpus=[0])])])) == []


BROKEN = world(
    nodes=[details(Gpu(index=9)), node("n0")],
    queues=[queue("q", parent="p")],
    jobs=[
        job("a", queue="x", waited=-HOUR, at=[replica("n7", gpus=[0])]),
        job("b", replicas=2, at=[replica("n7", gpus=[0])]),
        job("c").model_copy(update={"request": ResourceRequest(mig={"x": 1})}),
        job("d", depends_on=[{"job": "e"}]),
    ],
)


def test_checks_that_need_an_incomplete_section_are_passed_over():
    everything = set(found(BROKEN))

    assert len(everything) == 11
    for section in Section:
        assert set(found(BROKEN, incomplete=frozenset({section}))) < everything or section is Section.JOBS
    assert {location for location, _ in found(BROKEN, incomplete=frozenset(Section))} == {
        (*NODES, 1, "name"),
        (*NODES, 0, "gpus", "details", 0, "index"),
        ("jobs", 1, "running", "replicas"),
        ("jobs", 1, "running", "replicas", 0, "gpus", 0),
    }


def test_every_check_says_what_it_checks():
    assert all(check.__doc__ for check in CHECKS)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from("abcd"), max_size=4),
    st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.sampled_from("abcd")), max_size=4),
    st.lists(
        st.tuples(
            st.sampled_from("abcd"),
            st.sampled_from("abcd"),
            st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9), st.integers(1, 1000)), max_size=2),
        ),
        max_size=4,
    ),
)
def test_every_location_leads_to_an_entry_of_the_document(nodes, queues, jobs):
    snapshot = world(
        nodes=[node(name) for name in nodes],
        queues=[queue(name, parent=parent) for name, parent in queues],
        jobs=[
            job(
                name,
                queue=wait,
                at=[replica(on, gpus=[at], milli=milli) for on, at, milli in held] or None,
            )
            for name, wait, held in jobs
        ],
    )
    document = snapshot.model_dump(mode="json")

    for one in inconsistencies(snapshot):
        for location in (one.location, one.contradicts or ()):
            value = document
            for key in location:
                value = value[key]
        assert one.message.endswith((".", "meant."))


def test_suggestions_stop_after_so_many_questions():
    near = NearMisses(questions=2)

    assert [near.hint("reserch", ["research"]) for _ in range(3)] == [
        "\n  Maybe 'research' was meant."
    ] * 2 + [""]


def test_long_lists_are_cut_short():
    assert listed(f"q{number:02}" for number in range(99)).endswith("q18, q19 and 79 more")
    assert listed(["b", "a"]) == "a, b"
