"""What places cost: MIG layouts, domains, data, unloved nodes, bad company, leftover GPUs, nodes."""

from gpuplan.models.policy.policy import Disruption, MigPolicy, Policy, PoolPolicy, Prices
from tests.support.builders.build import by_value, job, node, placement, pool, replica, snapshot
from tests.support.harness.verify_helpers import asking, judge, sliced, worth


def policy(**prices):
    """Everything is allowed, and what it does to running jobs costs nothing."""
    free = {"disruption": 0, "migration": 0, "resize": 0}
    return by_value(
        disruption=Disruption(migrate=True), mig=MigPolicy(switch_mode=True), prices=Prices(**(free | prices))
    )


def on(*names, **more):
    return [replica(name, gpus=(index,), **more) for index, name in enumerate(names)]


# --- repartition -------------------------------------------------------------------------------------------

SMALL, HALF = "1g.10gb", "3g.40gb"


def repartition(nodes, *placed, **prices):
    """Jobs on instances (node, gpu, profile, start), all of them started."""
    jobs = [asking(job(f"j{number}"), mig={profile: 1}) for number, (*_, profile, _) in enumerate(placed)]
    placements = [
        placement(f"j{number}", sliced(replica(where), (index, profile, start)))
        for number, (where, index, profile, start) in enumerate(placed)
    ]
    world = snapshot(nodes=nodes, jobs=jobs)
    rules = policy(repartition=20, switch_mode=100, **prices)
    assert judge(world, *placements, policy=rules) == ()
    return worth(world, *placements, policy=rules).get("repartition", 0)


def test_an_instance_that_is_there_costs_nothing():
    assert repartition([node(mig={0: ((HALF, 4),)})], ("n0", 0, HALF, 4)) == 0


def test_each_instance_created_has_its_price():
    empty = [node(mig={0: (), 1: ((HALF, 4),)})]

    assert repartition(empty, ("n0", 0, HALF, 4)) == -20
    assert repartition(empty, ("n0", 1, HALF, 0), ("n0", 1, SMALL, 4)) == -40
    assert repartition(empty, ("n0", 0, HALF, 4), ("n0", 1, HALF, 4)) == -20


def test_a_gpu_switched_to_mig_mode_has_its_price_once_beside_that_of_its_instances():
    assert repartition([node()], ("n0", 0, HALF, 0), ("n0", 0, HALF, 4)) == -140
    assert repartition([node()], ("n0", 0, HALF, 0), ("n0", 3, HALF, 0)) == -240


def test_a_running_job_that_moves_pays_for_the_instance_it_gets():
    layout = ((HALF, 0), (SMALL, 4))
    runs = job("r", mig={HALF: 1}, at=[sliced(replica(), (0, HALF, 0))])
    world = snapshot(nodes=[node(mig={0: layout, 1: layout, 2: ()})], jobs=[runs])

    def moved_to(index):
        after = placement("r", sliced(replica(), (index, HALF, 0)))
        return worth(world, after, policy=policy()).get("repartition", 0)

    assert (moved_to(1), moved_to(2)) == (0, -20)


def test_a_running_job_that_stays_pays_nothing():
    runs = job("r", mig={HALF: 1}, at=[sliced(replica(), (0, HALF, 0))])
    starts = job("a", mig={SMALL: 1})
    gone = snapshot(nodes=[node(mig={0: ()})], jobs=[runs, starts])

    beside = placement("a", sliced(replica(), (0, SMALL, 4)))

    assert worth(gone, runs.placement, beside, policy=policy())["repartition"] == -20


# --- locality ----------------------------------------------------------------------------------------------

RACKS = (
    node("n0", rack="r0"),
    node("n1", rack="r0"),
    node("n2", rack="r1"),
    node("n3", rack="r0", zone="z1"),
    node("n4"),
    node("n5"),
)


def spread_over(*names, at=None, level="rack", size=None):
    wants = job("a", gpus=1, replicas=size or len(names), locality={"preferred": level}, at=at)
    world = snapshot(nodes=RACKS, jobs=[wants])
    return worth(world, placement("a", *on(*names)), policy=policy(domain=50)).get("locality", 0)


def test_each_domain_beyond_the_first_has_its_price():
    assert spread_over("n0", "n1", "n0") == 0
    assert spread_over("n0", "n2") == -50
    assert spread_over("n0", "n1", "n2", "n3", "n2") == -100
    assert spread_over("n0", "n1", level="node") == -50


def test_a_node_in_no_domain_is_its_own():
    assert spread_over("n4", "n4") == 0
    assert spread_over("n4", "n5", "n0") == -100


def test_a_job_that_prefers_nothing_pays_nothing():
    assert spread_over("n0", "n2", level=None) == 0


def test_a_moved_job_pays_for_where_it_will_be():
    assert spread_over("n0", "n2", at=on("n0", "n1")) == -50
    assert spread_over("n0", "n1", at=on("n0", "n2")) == 0


def test_a_job_that_stays_shrinks_or_grows_pays_nothing():
    assert spread_over("n0", "n2", at=on("n0", "n2")) == 0
    assert spread_over("n0", "n2", at=on("n0", "n2", "n3"), size=(1, 3)) == 0
    assert spread_over("n0", "n2", "n3", at=on("n0", "n2"), size=(1, 3)) == 0


def test_a_job_without_gpus_pays_too():
    wants = job("a", cpus=1, replicas=2, locality={"preferred": "rack"})
    after = placement("a", replica("n0", cpus=1), replica("n2", cpus=1))

    assert worth(snapshot(nodes=RACKS, jobs=[wants]), after, policy=policy())["locality"] == -50


# --- data --------------------------------------------------------------------------------------------------

ZONES = (node("n0", zone="z0"), node("n1", zone="z1"), node("n2"))
WEIGHTS = {"name": "weights", "zones": {"z0": 0, "z1": 0.25}, "elsewhere": 2}
CORPUS = {"name": "corpus", "zones": {"z0": 0.119}}


def reading(*names, at=None, size=None, datasets=("weights",)):
    reads = job("a", gpus=1, replicas=size or len(names), datasets=datasets, at=at)
    world = snapshot(nodes=ZONES, jobs=[reads], datasets=[WEIGHTS, CORPUS])
    return worth(world, placement("a", *on(*names)), policy=policy(currency=100)).get("data", 0)


def test_each_new_replica_pays_for_its_data_by_zone():
    assert reading("n0") == 0
    assert reading("n1") == -25
    assert reading("n2") == -200
    assert reading("n0", "n1", "n1") == -50


def test_all_datasets_of_a_replica_are_added_up_before_rounding():
    assert reading("n0", datasets=("weights", "corpus")) == -12
    assert reading("n0", "n0", datasets=("corpus",)) == -24
    assert reading("n1", datasets=("weights", "corpus")) == -25


def test_a_job_that_reads_nothing_pays_nothing():
    assert reading("n2", datasets=()) == 0


def test_only_new_replicas_pay():
    assert reading("n2", at=on("n2")) == 0
    assert reading("n1", "n1", at=on("n1"), size=(1, 2)) == -25
    assert reading("n1", at=on("n1", "n1"), size=(1, 2)) == 0
    assert reading("n1", "n0", at=on("n1", "n1")) == -25


# --- preference --------------------------------------------------------------------------------------------

TIERS = (node("n0", labels={"tier": "gold"}), node("n1", labels={"tier": "iron"}), node("n2"))
GOLD = {"match": {"key": "tier", "values": ("gold",)}, "points": 7}
LABELLED = {"match": {"key": "tier", "operator": "Exists"}, "points": 40}


def preferring(*names, at=None, size=None, wishes=(GOLD, LABELLED)):
    picky = job("a", gpus=1, replicas=size or len(names), preferred_nodes=wishes, at=at)
    world = snapshot(nodes=TIERS, jobs=[picky])
    return worth(world, placement("a", *on(*names)), policy=policy()).get("preference", 0)


def test_each_new_replica_pays_for_each_wish_its_node_does_not_meet():
    assert preferring("n0") == 0
    assert preferring("n1") == -7
    assert preferring("n2") == -47
    assert preferring("n0", "n1", "n2") == -54


def test_only_new_replicas_pay_for_wishes():
    assert preferring("n1", at=on("n1")) == 0
    assert preferring("n1", "n1", at=on("n1"), size=(1, 2)) == -7
    assert preferring("n1", "n0", at=on("n1", "n1")) == -7


# --- interference ------------------------------------------------------------------------------------------

TRAIN_SERVE = {"classes": ("train", "serve"), "points": 30}
SERVE_TWICE = {"classes": ("serve", "serve"), "points": 5}


def meeting(*jobs, prices=(TRAIN_SERVE, SERVE_TWICE)):
    """Jobs (class, replicas, True if they run) that shall all run."""
    described = [
        job(f"j{number}", cpus=1, replicas=len(places), workload_class=kind, at=places if there else None)
        for number, (kind, places, there) in enumerate(jobs)
    ]
    placements = [placement(each.name, *places) for each, (_, places, _) in zip(described, jobs, strict=True)]
    return worth(snapshot(jobs=described), *placements, policy=policy(interference=prices)).get(
        "interference", 0
    )


def at(*names):
    return [replica(name, cpus=1) for name in names]


def test_two_classes_that_come_to_share_a_node_cost_their_price():
    assert meeting(("train", at("n0"), False), ("serve", at("n0"), False)) == -30
    assert meeting(("serve", at("n0"), True), ("train", at("n0"), False)) == -30
    assert meeting(("train", at("n0"), False), ("serve", at("n1"), False)) == 0
    assert meeting(("train", at("n0"), False), ("default", at("n0"), False)) == 0


def test_each_node_counts_once():
    assert meeting(("train", at("n0", "n0", "n1"), False), ("serve", at("n0", "n1"), False)) == -60
    three = [("train", at("n0"), False), ("train", at("n0"), False), ("serve", at("n0"), False)]
    assert meeting(*three) == -30


def test_two_jobs_of_one_class_interfere_if_the_class_is_given_twice():
    assert meeting(("serve", at("n0"), False), ("serve", at("n0"), False)) == -5
    assert meeting(("serve", at("n0", "n0"), False)) == 0
    assert meeting(("train", at("n0"), False), ("train", at("n0"), False)) == 0


def test_prices_of_several_meetings_add_up():
    serves = [("serve", at("n0"), False), ("serve", at("n0"), True)]

    assert meeting(*serves, ("train", at("n0"), False)) == -35


def test_jobs_that_met_before_cost_nothing():
    met = [("serve", at("n0"), True), ("train", at("n0"), True)]

    assert meeting(*met) == 0
    assert meeting(*met, ("train", at("n0"), False)) == 0
    assert meeting(*met, ("serve", at("n0"), False)) == -5


def test_a_job_that_is_stopped_meets_no_other():
    jobs = [
        job("r", cpus=1, workload_class="train", at=at("n0")),
        job("a", cpus=1, workload_class="serve", priority=1),
    ]

    terms = worth(snapshot(jobs=jobs), placement("a", *at("n0")), policy=policy(interference=(TRAIN_SERVE,)))

    assert terms == {"completion": 10}


# --- fragmentation -----------------------------------------------------------------------------------------


def leftover(*free, size=4, nodes=None, **target):
    """What nodes cost of which so many GPUs are free; 8 each in all."""
    nodes = [node(f"n{number}") for number in range(len(free))] if nodes is None else nodes
    jobs, placements = [], []
    for number, count in enumerate(free):
        if count < 8:
            jobs.append(job(f"j{number}", gpus=8 - count))
            placements.append(placement(f"j{number}", replica(f"n{number}", gpus=range(8 - count))))
    world = snapshot(nodes=nodes, jobs=jobs, pools=target.pop("pools", ()))
    terms = worth(world, *placements, policy=policy(fragmentation=3, reference_gpus=size), **target)
    return terms.get("fragmentation", 0)


def test_gpus_beside_whole_multiples_of_the_reference_are_left_over():
    points = {free: leftover(free) for free in (8, 7, 5, 4, 3, 0)}

    assert points == {8: 0, 7: -9, 5: -3, 4: 0, 3: -9, 0: 0}


def test_every_node_counts_by_itself():
    assert leftover(7, 5, 8) == -12


def test_a_reference_larger_than_a_node_never_fits():
    assert leftover(8, 3, size=16) == -33


def test_only_healthy_and_wholly_free_gpus_outside_of_mig_mode_are_free():
    sick = {"index": 1, "healthy": False}
    half = placement("s", replica("n0", gpus=(2,), milli=10))
    world = snapshot(nodes=[node(mig={0: ()}, details=[sick])], jobs=[job("s", milli=10)])
    prices = policy(fragmentation=1, reference_gpus=8)

    assert worth(world, policy=prices)["fragmentation"] == -6
    assert worth(world, half, policy=prices)["fragmentation"] == -5


def test_a_gpu_switched_to_mig_mode_is_not_free():
    world = snapshot(nodes=[node()], jobs=[job("m", mig={HALF: 1})])
    after = placement("m", sliced(replica(), (0, HALF, 0)))

    assert worth(world, after, policy=policy(fragmentation=1))["fragmentation"] == -7


def test_only_nodes_that_take_jobs_count():
    closed = [
        node("n0", gpus=2, cordoned=True),
        node("n1", gpus=2, drain=True),
        node("n2", gpus=2, ready=False),
        node("n3", gpus=3),
    ]

    assert leftover(nodes=closed) == -9


def test_added_nodes_count_and_removed_ones_do_not():
    small = node("spot", gpus=3)
    pools = [pool(template=small)]
    old, new = (small.model_copy(update={"name": f"spot-{number}", "pool": "spot"}) for number in (1, 2))

    assert leftover(nodes=[old], pools=pools) == -9
    assert leftover(nodes=[old], pools=pools, added=(new,)) == -18
    assert leftover(nodes=[old], pools=pools, removed=("spot-1",)) == 0


def test_without_a_price_nothing_is_counted():
    assert worth(snapshot(nodes=[node(gpus=3)]), policy=Policy()) == {"completion": 0}


# --- nodes -------------------------------------------------------------------------------------------------

DEAR, CHEAP = node("dear", price_per_hour=4.0), node("cheap", gpus=2, price_per_hour=1.0, spot=True)
POOLS = (
    pool("dear", template=DEAR),
    pool("cheap", template=CHEAP, interruptions_per_hour=0.6),
)


def of(template, number):
    return template.model_copy(update={"name": f"{template.name}-{number}", "pool": template.name})


def changed_nodes(*, added=(), removed=(), horizon="1h", scaling=0):
    world = snapshot(nodes=[of(DEAR, 1), of(CHEAP, 1)], pools=POOLS)
    rules = by_value(pools=PoolPolicy(horizon=horizon), prices=Prices(scaling=scaling))
    return worth(world, policy=rules, added=added, removed=removed).get("nodes", 0)


def test_an_added_node_costs_its_price_over_the_horizon():
    assert changed_nodes(added=(of(DEAR, 2),)) == -400
    assert changed_nodes(added=(of(DEAR, 2), of(DEAR, 3)), horizon="30m") == -400


def test_a_spot_node_costs_what_its_interruptions_lose_too():
    # 100 for the hour, and 0.6 times five minutes of two GPUs at 100 an hour
    assert changed_nodes(added=(of(CHEAP, 2),)) == -110


def test_a_removed_node_saves_as_much():
    assert changed_nodes(removed=("dear-1",)) == 400
    assert changed_nodes(added=(of(CHEAP, 2),), removed=("dear-1",)) == 290


def test_each_node_added_or_removed_costs_the_price_of_a_change():
    assert changed_nodes(added=(of(DEAR, 2),), scaling=7) == -407
    assert changed_nodes(removed=("dear-1",), scaling=7) == 393
    assert changed_nodes(added=(of(DEAR, 2),), removed=("dear-1",), scaling=7) == -14


def test_nodes_of_no_pool_cost_nothing():
    assert changed_nodes(added=(node("x"),), removed=("gone",), scaling=7) == 0
