"""Values of the plain model's columns → Target: what its optimum says, so that the verifier can judge it."""

from __future__ import annotations

from gpuplan.models.placement import GpuShare, MigSlice, Placement, Replica
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.units import MILLI, print_milli
from tests.support.strategies.random_targets import sorted_by_job


def realized(snapshot, x, values):
    """The target that has these values, as far as columns tell targets apart."""
    problem, value = x.problem, values.tolist()
    placements = {each.job: each for each in snapshot.running_placements}
    for index, incumbent in enumerate(problem.incumbents):
        before = placements[incumbent.job].replicas
        if any(value[column] for column in x.away(index)):
            del placements[incumbent.job]
            continue
        kept = tuple(
            replica for position, replica in enumerate(before) if not value[x["gives", index, position]]
        )
        placements[incumbent.job] = Placement(job=incumbent.job, replicas=kept)
    for candidate in x.candidates:
        if value[x["placed", *candidate.key]]:
            new = tuple(_replicas(snapshot, x, value, candidate))
            if candidate.job_class.role is ClassRole.GROW:
                new = (*placements[candidate.name].replicas, *new)
            placements[candidate.name] = Placement(job=candidate.name, replicas=new)
    return DesiredState(
        sorted_by_job(placements.values()),
        tuple(
            node
            for option in problem.pools
            for node in option.nodes
            if value[x["open", _index(problem, node.name)]]
        ),
        tuple(
            sorted(
                node.name
                for index, node in enumerate(problem.nodes)
                if ("close", index) in x.index and value[x["close", index]]
            )
        ),
    )


def _index(problem, name):
    return next(index for index, node in enumerate(problem.nodes) if node.name == name)


def _replicas(snapshot, x, value, candidate):
    """New replicas node by node, each with its part of what is held there."""
    shape, request = candidate.job_class.shape, snapshot.job_by_name[candidate.name].request
    for node in x.nodes_of(candidate):
        count = value[x["replicas", *candidate.key, node]]
        held = {
            kind: [
                gpu
                for gpu in range(len(x.problem.nodes[node].gpus))
                if (column := x.index.get((kind, *candidate.key, node, gpu))) is not None
                for _ in range(value[column])
            ]
            for kind in ("whole", "share")
        }
        slices = {
            profile: [
                MigSlice(index=gpu, profile=profile, start=start)
                for gpu in range(len(x.problem.nodes[node].gpus))
                for start in range(8)
                for _ in range(value[x["slice", *candidate.key, node, gpu, profile, start]])
            ]
            for profile, _ in shape.mig
        }
        for number in range(count):
            parts = [
                GpuShare(index=gpu, milli=MILLI)
                for gpu in held["whole"][number * shape.gpus : (number + 1) * shape.gpus]
            ]
            if shape.gpu_milli:
                parts = [GpuShare(index=held["share"][number], milli=shape.gpu_milli)]
            for profile, each in shape.mig:
                parts += slices[profile][number * each : (number + 1) * each]
            yield Replica(
                node=x.problem.nodes[node].name,
                gpus=tuple(parts),
                cpus=print_milli(request.cpu_milli),
                memory_mib=request.memory_mib,
                disk_mib=request.disk_mib,
                resources=request.resources,
            )
