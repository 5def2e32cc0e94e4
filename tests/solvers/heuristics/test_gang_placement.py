"""Where greedy puts gangs: together, apart, away from others, and where it costs least."""

from __future__ import annotations

from gpuplan.models.affinity import AntiAffinity, LocalityPreference, NodeMatch, PreferredNodes, Spread
from gpuplan.models.cluster import Dataset, Level, RackPower
from gpuplan.models.policy.policy import Interference, Policy, Prices, Profile
from tests.support.builders import build
from tests.support.harness.greedy_plans import plan

ONE_RACK = LocalityPreference(required=Level.RACK)
FEW_RACKS = LocalityPreference(preferred=Level.RACK)


def racks(*sizes, gpus=8, **more):
    """Racks r0, r1, … of so many nodes r0-0, r0-1, …"""
    return [
        build.node(f"r{rack}-{number}", gpus=gpus, region="eu", zone="a", rack=f"r{rack}", **more)
        for rack, size in enumerate(sizes)
        for number in range(size)
    ]


def rack_names(planned, job):
    return sorted({node.split("-")[0] for node in planned.nodes(job)})


def test_gang_that_needs_one_rack_gets_the_tightest_that_holds_it():
    snapshot = build.snapshot(nodes=racks(4, 2, 1), jobs=[build.job(gpus=8, replicas=2, locality=ONE_RACK)])

    assert rack_names(plan(snapshot), "a") == ["r1"]


def test_gang_that_fits_no_rack_waits_and_holds_nothing():
    jobs = [build.job(gpus=8, replicas=3, locality=ONE_RACK, priority=5), build.job("b", gpus=8, replicas=4)]

    planned = plan(build.snapshot(nodes=racks(2, 2), jobs=jobs))

    assert set(planned.places) == {"b"}


def test_gang_tries_the_next_rack_where_cpus_spoil_the_first():
    """The tighter rack has the GPUs on paper; its second node lacks the cores."""
    poor = build.node("r0-0", gpus=8, cpus=20, region="eu", zone="a", rack="r0")
    rich = [build.node(f"r1-{n}", gpus=8, region="eu", zone="a", rack="r1") for n in range(3)]
    job = build.job(gpus=4, cpus=16, replicas=2, locality=ONE_RACK)

    assert rack_names(plan(build.snapshot(nodes=[poor, *rich], jobs=[job])), "a") == ["r1"]


def test_elastic_gang_prefers_the_rack_that_holds_all_it_may_have():
    job = build.job(gpus=8, replicas=(1, 3), locality=ONE_RACK)

    planned = plan(build.snapshot(nodes=racks(1, 3), jobs=[job]))

    assert planned.nodes("a") == ["r1-0", "r1-1", "r1-2"]


def test_gang_spans_as_few_racks_as_it_can():
    snapshot = build.snapshot(
        nodes=racks(1, 3, 2), jobs=[build.job(gpus=8, replicas=4, priority=9, locality=FEW_RACKS)]
    )

    planned = plan(snapshot)

    # Three in the largest rack, the last one in the tightest that is left.
    assert rack_names(planned, "a") == ["r0", "r1"]
    assert planned.terms["locality"] == -50


def test_gang_does_not_start_where_the_racks_it_spans_cost_more_than_it_brings():
    snapshot = build.snapshot(nodes=racks(1, 1), jobs=[build.job(gpus=8, replicas=2, locality=FEW_RACKS)])

    assert plan(snapshot, build.by_value(prices=Prices(domain=1600))).nodes("a") == ["r0-0", "r1-0"]
    assert plan(snapshot, build.by_value(prices=Prices(domain=1601))).places == {}


def test_elastic_gang_grows_into_another_rack_only_if_that_pays():
    snapshot = build.snapshot(
        nodes=racks(1, 1), jobs=[build.job(gpus=8, replicas=(1, 2), locality=FEW_RACKS)]
    )

    assert len(plan(snapshot, build.by_value(prices=Prices(domain=800))).nodes("a")) == 2
    assert len(plan(snapshot, build.by_value(prices=Prices(domain=801))).nodes("a")) == 1


def test_spread_gang_has_no_more_in_a_domain_than_it_may():
    snapshot = build.snapshot(
        nodes=racks(2, 1, 1), jobs=[build.job(gpus=1, replicas=4, spread=Spread(level=Level.RACK, max=2))]
    )

    nodes = plan(snapshot).nodes("a")

    assert max(sum(node.startswith(rack) for node in nodes) for rack in ("r0", "r1", "r2")) <= 2


def test_spread_gang_without_enough_domains_waits():
    snapshot = build.snapshot(
        nodes=build.cluster(3), jobs=[build.job(gpus=1, replicas=4, spread=Spread(max=1))]
    )

    assert plan(snapshot).places == {}


def test_spread_elastic_gang_grows_within_its_spread():
    snapshot = build.snapshot(
        nodes=build.cluster(3), jobs=[build.job(gpus=1, replicas=(1, 9), spread=Spread(max=2))]
    )

    assert plan(snapshot).nodes("a") == ["n0", "n0", "n1", "n1", "n2", "n2"]


def test_jobs_that_avoid_each_other_get_domains_of_their_own():
    alone = {"labels": {"app": "x"}, "anti_affinity": (AntiAffinity(labels={"app": "x"}, level=Level.RACK),)}
    jobs = [build.job(name, gpus=1, **alone) for name in "abc"]

    planned = plan(build.snapshot(nodes=racks(2, 2), jobs=jobs))

    assert len(planned.places) == 2
    assert len({rack for job in planned.places for rack in rack_names(planned, job)}) == 2


def test_replicas_of_one_job_do_not_avoid_each_other():
    alone = {"labels": {"app": "x"}, "anti_affinity": (AntiAffinity(labels={"app": "x"}),)}
    snapshot = build.snapshot(nodes=build.cluster(1), jobs=[build.job(gpus=1, replicas=(2, 4), **alone)])

    assert plan(snapshot).nodes("a") == ["n0"] * 4


def test_job_keeps_away_from_what_runs_and_what_runs_keeps_it_away():
    quiet = AntiAffinity(labels={"app": "loud"})
    jobs = [
        build.job(
            "loud", gpus=1, labels={"app": "loud"}, preemptible=False, at=[build.replica("n0", gpus=[0])]
        ),
        build.job(
            "shy", gpus=1, anti_affinity=(quiet,), preemptible=False, at=[build.replica("n1", gpus=[0])]
        ),
        build.job("a", gpus=1, anti_affinity=(quiet,)),
        build.job("b", gpus=1, labels={"app": "loud"}),
    ]

    planned = plan(build.snapshot(nodes=build.cluster(2), jobs=jobs))

    assert (planned.nodes("a"), planned.nodes("b")) == (["n1"], ["n0"])


def test_replica_goes_where_its_data_cost_least():
    nodes = [build.node("far", zone="b"), build.node("near", zone="a")]
    snapshot = build.snapshot(nodes=nodes, jobs=[build.job(gpus=1, datasets=("d",))])
    cluster = snapshot.cluster.model_copy(
        update={"datasets": (Dataset(name="d", zones={"a": 0.1}, elsewhere=0.5),)}
    )

    planned = plan(snapshot.model_copy(update={"cluster": cluster}))

    assert planned.nodes("a") == ["near"]
    assert planned.terms["data"] == -10


def test_job_with_data_that_cost_more_than_it_brings_waits():
    snapshot = build.snapshot(nodes=build.cluster(1), jobs=[build.job(gpus=1, datasets=("d",))])
    cluster = snapshot.cluster.model_copy(update={"datasets": (Dataset(name="d", elsewhere=1.01),)})

    assert plan(snapshot.model_copy(update={"cluster": cluster})).places == {}


def test_preferred_nodes_are_taken_first():
    nodes = [build.node("n0"), build.node("n1", labels={"tier": "gold"})]
    wish = PreferredNodes(match=NodeMatch(key="tier", values=("gold",)), points=30)

    assert plan(build.snapshot(nodes=nodes, jobs=[build.job(gpus=1, preferred_nodes=(wish,))])).nodes(
        "a"
    ) == ["n1"]


def test_jobs_that_disturb_each_other_keep_apart_while_there_is_room():
    prices = Prices(interference=(Interference(classes=("training", "inference"), points=40),))
    jobs = [
        build.job("t", gpus=1, workload_class="training", at=[build.replica("n0", gpus=[0])]),
        build.job("i", gpus=1, workload_class="inference"),
    ]

    apart = plan(build.snapshot(nodes=build.cluster(2), jobs=jobs), Policy(prices=prices))
    together = plan(build.snapshot(nodes=build.cluster(1), jobs=jobs), Policy(prices=prices))

    assert apart.nodes("i") == ["n1"]
    assert together.nodes("i") == ["n0"]
    assert together.terms["interference"] == -40


def test_profile_decides_between_nodes_that_cost_the_same():
    running = build.job("r", gpus=4, at=[build.replica("n1", gpus=range(4))])
    snapshot = build.snapshot(
        nodes=build.cluster(2), jobs=[running, build.job(gpus=2, workload_class="serving")]
    )

    packed, spread = (
        plan(snapshot, Policy(profiles={"serving": profile})) for profile in (Profile.PACK, Profile.SPREAD)
    )

    assert (packed.nodes("a"), spread.nodes("a")) == (["n1"], ["n0"])


def test_balanced_job_goes_where_what_is_left_is_in_proportion():
    nodes = [build.node("n0", cpus=96, memory_gib=512), build.node("n1", cpus=20, memory_gib=512)]
    policy = Policy(profiles={"serving": Profile.BALANCED})
    heavy = build.job(gpus=4, cpus=10, memory_gib=256, workload_class="serving")

    # Half the GPUs and half the memory of either; half the cores of the second only.
    assert plan(build.snapshot(nodes=nodes, jobs=[heavy]), policy).nodes("a") == ["n1"]


def test_whole_gpus_of_a_replica_are_joined_and_the_larger_group_stays_whole():
    details = [build.Gpu(index=index, nvlink=0 if index < 5 else 1, numa=index % 2) for index in range(8)]
    node = build.node(details=details)

    planned = plan(build.snapshot(nodes=[node], jobs=[build.job(gpus=2)]))

    # Group 1 is GPUs 5 to 7; of these 5 and 7 are on one NUMA node.
    assert planned.held("a") == [5, 7]


def test_rack_takes_no_more_than_its_power():
    snapshot = build.snapshot(
        nodes=racks(2, gpus=4, watts=500), jobs=[build.job(name, gpus=1) for name in "abcdef"]
    )
    cap = RackPower(region="eu", zone="a", rack="r0", watts=1700)
    cluster = snapshot.cluster.model_copy(update={"rack_power": (cap,)})

    assert len(plan(snapshot.model_copy(update={"cluster": cluster})).places) == 3


def test_fragmentation_sends_small_jobs_to_nodes_that_are_cut_already():
    running = build.job("r", gpus=1, at=[build.replica("n1", gpus=[0])])
    jobs = [running, build.job(gpus=7)]
    policy = Policy(prices=Prices(fragmentation=20, reference_gpus=8), profiles={"default": Profile.SPREAD})

    planned = plan(build.snapshot(nodes=build.cluster(2), jobs=jobs), policy)

    assert planned.nodes("a") == ["n1"]


def test_queue_that_is_owed_gpus_goes_first():
    queues = [build.queue("owed", nominal=8, guarantee=2), build.queue("rich")]
    jobs = [build.job("a", gpus=2, queue="owed"), build.job("b", gpus=8, priority=9, queue="rich")]

    planned = plan(build.snapshot(nodes=build.cluster(1), jobs=jobs, queues=queues))

    assert set(planned.places) == {"a"}


def test_only_as_many_jobs_of_a_queue_go_first_as_it_is_owed():
    queues = [build.queue("owed", nominal=8, guarantee=2), build.queue("rich")]
    jobs = [
        *(build.job(f"a{index}", gpus=1, queue="owed") for index in range(6)),
        build.job("b", gpus=6, priority=9, queue="rich"),
    ]

    planned = plan(build.snapshot(nodes=build.cluster(1), jobs=jobs, queues=queues))

    assert set(planned.places) == {"a0", "a1", "b"}


def test_elastic_gang_that_spreads_within_racks_it_prefers_keeps_its_spread():
    job = build.job(gpus=1, replicas=(1, 9), locality=FEW_RACKS, spread=Spread(max=2))

    planned = plan(build.snapshot(nodes=racks(2, 1), jobs=[job]), Policy(prices=Prices(domain=10)))

    assert planned.nodes("a") == ["r0-0", "r0-0", "r0-1", "r0-1", "r1-0", "r1-0"]
