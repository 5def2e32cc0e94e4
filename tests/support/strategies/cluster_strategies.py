"""What random jobs are placed on: a cluster with all that one may have, and a policy."""

from __future__ import annotations

from gpuplan.models.cluster import (
    Cluster,
    Dataset,
    Gpu,
    MigInstance,
    Node,
    NodeGpus,
    NodePool,
    Overcommit,
    QosClass,
    RackPower,
)
from gpuplan.models.mig import mig_geometry
from gpuplan.models.policy.policy import Disruption, Interference, MigPolicy, PoolPolicy, Prices, Weights
from tests.support.builders import build
from tests.support.strategies.instance_sizes import CLASSES, CORES_PER_GPU, HCA, TAINT, WATTS


def cluster(draw, features, kit):
    """Up to three nodes that exist and two that might."""
    closed = draw.choice(("drain", "cordoned")) if "drain" in features else ""
    more = [draw.choice((0, *kit.nodes)) for _ in range(draw.randint(0, kit.most_nodes - 1))]
    counts = [draw.choice(kit.nodes), *more]
    nodes = [_node(draw, f"n{index}", count, features, kit, closed) for index, count in enumerate(counts)]
    pools = ()
    if "pools" in features:
        pool, members = _pool(draw, features, kit)
        nodes, pools = [*nodes[: max(1, kit.most_nodes - len(members))], *members], (pool,)
    caps = ()
    racks = [node for node in nodes if node.rack]
    if "power" in features and racks and draw.random() < 0.7:
        first = draw.choice(racks)
        watts = WATTS * draw.randint(1, 6)
        caps = (RackPower(region=first.region, zone=first.zone, rack=first.rack, watts=watts),)
    return Cluster(
        nodes=tuple(nodes),
        pools=pools,
        overcommit=_overcommit(draw) if "overcommit" in features else {},
        datasets=_datasets(draw) if "data" in features else (),
        rack_power=caps,
    )


def _node(draw, name, count, features, kit, closed="", *, plain=False):
    cores = CORES_PER_GPU * max(count, 1) if kit.fair else draw.choice((8, 16, 24, 40))
    more = {}
    if features & {"filters", "data"}:
        more["labels"] = {"tier": draw.choice(("gold", "iron"))}
    if "filters" in features:
        more["taints"] = (TAINT,) if draw.random() < 0.2 else ()
        more["resources"] = {HCA: draw.choice((1, 2))} if draw.random() < 0.7 else {}
        more["disk_mib"] = draw.choice((0, 100, 200)) * 1024
    if features & {"racks", "power", "spread", "anti_affinity", "data"}:
        more["region"] = draw.choice(("eu", "eu", "us"))
        more["zone"] = draw.choice(("z0", "z0", "z1"))
        more["rack"] = draw.choice(("r0", "r1", "r1", ""))
    if "power" in features and draw.random() < 0.5:
        more["power_cap_watts"] = WATTS * draw.randint(1, 4) - draw.choice((0, 350))
    if closed and draw.random() < 0.5:
        more[closed] = True
    return Node(
        name=name,
        gpus=_gpus(draw, count, features, kit, plain=plain) if count else None,
        cpus=cores,
        memory_mib=cores * 8 * 1024,
        **more,
    )


def _gpus(draw, count, features, kit, *, plain):
    model = draw.choice(kit.models)
    details = []
    if not plain:
        for index in range(count):
            if "mig" in features and mig_geometry(model) and draw.random() < 0.4:
                details.append(Gpu(index=index, mig=_instances(draw.choice(kit.layouts))))
            elif "filters" in features and draw.random() < 0.1:
                details.append(Gpu(index=index, healthy=False))
    return NodeGpus(
        model=model,
        count=count,
        memory_mib=81559,
        details=tuple(details),
        time_sliced="sharing" in features and draw.random() < 0.5,
        watts=WATTS if "power" in features else 0,
    )


def _instances(layout):
    return tuple(MigInstance(profile=profile, start=start) for profile, start in layout)


def _pool(draw, features, kit):
    """A pool with some of its nodes."""
    template = _node(draw, "p", draw.choice((0, *kit.nodes)), features, kit, plain=True)
    template = template.model_copy(
        update={"price_per_hour": draw.choice((0.0, 0.5, 2.0, 6.0)), "spot": draw.random() < 0.3}
    )
    members = [
        template.model_copy(update={"name": f"p-{number}", "pool": "p"})
        for number in draw.choice(((), (1,), (2,), tuple(range(1, kit.most_nodes))))
    ]
    pool = NodePool(
        name="p",
        template=template,
        minimum=max(0, len(members) - draw.choice((0, 1, 1, 2))),
        maximum=len(members) + draw.randint(0, 2),
        interruptions_per_hour=draw.choice((0.0, 0.5)),
    )
    return pool, members


def _overcommit(draw):
    twice = Overcommit(cpus=draw.choice((1.5, 2, 4)), memory=draw.choice((1, 1.5)))
    return {QosClass.BEST_EFFORT: twice, QosClass.BURSTABLE: Overcommit(cpus=1.25)}


def _datasets(draw):
    return (
        Dataset(name="d0", zones={"z0": 0.0}, elsewhere=draw.choice((0.2, 1.5))),
        Dataset(name="d1", zones={"z1": 0.1, "z0": 0.4}, elsewhere=0.4),
    )


# --- policy ------------------------------------------------------------------------------------------------


def policy(draw, features):
    """Disruption on and off, prices low and high."""
    return build.by_value(
        weights=Weights(),
        priority=build.BY_WEIGHT,
        disruption=Disruption(
            preempt=draw.random() < 0.8,
            resize=draw.random() < 0.8,
            migrate=draw.random() < 0.4,
            priority_gap=draw.choice((0, 1, 1, 2)),
            minimum_runtime=draw.choice((0, 0, 1800)),
        ),
        mig=MigPolicy(repartition=draw.random() < 0.8, switch_mode=draw.random() < 0.6),
        pools=PoolPolicy(scale_up=draw.random() < 0.9, scale_down=draw.random() < 0.8),
        prices=Prices(
            guarantee=draw.choice((100_000, 300)),
            disruption=draw.choice((100, 30)),
            migration=draw.choice((10, 0)),
            resize=draw.choice((10, 3)),
            repartition=draw.choice((20, 0)),
            switch_mode=draw.choice((100, 15)),
            domain=draw.choice((15, 50, 50, 0)),
            fragmentation=draw.choice((5, 40)) if "fragmentation" in features else 0,
            reference_gpus=draw.choice((2, 4)) if "fragmentation" in features else 8,
            drain=draw.choice((10_000, 150)),
            interference=_interference(draw) if "interference" in features else (),
        ),
    )


def sparing(policy, most):
    """The policy, where no job is disturbed that was preempted so often."""
    rules = policy.disruption.model_copy(update={"max_preemptions": most})
    return policy.model_copy(update={"disruption": rules})


def _interference(draw):
    return (
        Interference(classes=CLASSES, points=draw.choice((20, 150))),
        Interference(classes=(CLASSES[1], CLASSES[1]), points=draw.choice((5, 90))),
    )
