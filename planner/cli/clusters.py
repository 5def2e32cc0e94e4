"""The cluster that a command is about: its options, and how it is opened."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuplan.planner.cli.options import ANY_PATH, STATE, stray_option
from gpuplan.planner.cli.outputs import say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.cluster import Cluster
    from gpuplan.models.plan.plan import Plan
    from gpuplan.planner.executors.interface import Executor
    from gpuplan.planner.executors.local.host import LocalHost

HOST = Path(".gpuplan") / "host"
AUDIT = ".gpuplan/audit.jsonl"

state_option = click.option(
    "--state",
    type=click.Path(path_type=Path),
    default=STATE,
    show_default=True,
    help="File of the simulated cluster; for `local` the folder of its queue, by default .gpuplan/host.",
)
allow_mig_option = click.option(
    "--allow-mig", is_flag=True, help="local: the MIG layouts of GPUs without processes may be changed."
)
audit_option = click.option(
    "--audit",
    "audit_file",
    type=click.Path(path_type=Path),
    default=AUDIT,
    show_default=True,
    help="Audit log.",
)
in_force_option = click.option(
    "--policy",
    "policy_file",
    type=ANY_PATH,
    help="Policy in force, for approvals; by default policy.yaml beside --state (Slurm: in .gpuplan).",
)
drift_option = click.option(
    "--drift",
    "drift_mode",
    type=click.Choice(["strict", "preconditions"]),
    help="How much may have changed since the plan was made; by default as its policy says.",
)


def check_executor(executor: str | None) -> None:
    """Raise a usage error if the command line has an option of another executor."""
    if executor == "slurm" and (stray := stray_option({"state"})):
        raise click.UsageError(f"{stray} is for --executor simulated and local.")
    if executor != "local" and (stray := stray_option({"allow_mig"})):
        raise click.UsageError(f"{stray} is for --executor local.")


@contextmanager
def open_cluster(executor: str, state: Path, *, allow_mig: bool = False) -> Iterator[Executor]:
    """Open a cluster that is there."""
    if executor == "slurm":
        from gpuplan.planner.executors.slurm.cluster import SlurmCluster

        yield SlurmCluster()
    elif executor == "local":
        yield open_host(state, allow_mig=allow_mig)
    else:
        from gpuplan.planner.executors.simulated import SimulatedCluster

        with SimulatedCluster(state) as cluster:
            yield cluster


def open_host(state: Path, *, allow_mig: bool = False) -> LocalHost:
    """The queue of this host as an executor: the default one unless the command line gives its folder."""
    from gpuplan.planner.executors.local.host import LocalHost

    return LocalHost(state if stray_option({"state"}) else HOST, allow_mig=allow_mig)


@contextmanager
def open_or_create(executor: str, state: Path, plan: Plan, *, allow_mig: bool) -> Iterator[Executor]:
    """Open the cluster; a simulated one that is created for a plan that is then refused is deleted."""
    from gpuplan.models.errors import StalePlanError
    from gpuplan.planner.executors.simulated import SimulatedCluster
    from gpuplan.planner.io.atomic_write import make_directory

    if executor != "simulated" or state.exists():
        with open_cluster(executor, state, allow_mig=allow_mig) as there:
            yield there
        return
    say(f"Creating the simulated cluster {state} from the plan's snapshot.", err=True)
    make_directory(state.parent)
    try:
        with SimulatedCluster.create(state, plan.snapshot) as cluster:
            yield cluster
    except StalePlanError:
        state.unlink(missing_ok=True)
        raise


@contextmanager
def open_for_source(executor: str, source: str, state: Path, *, allow_mig: bool) -> Iterator[Executor]:
    """Open the cluster; a simulated one is created from the source if it does not exist."""
    from gpuplan.planner.executors.simulated import SimulatedCluster
    from gpuplan.planner.io.atomic_write import make_directory
    from gpuplan.planner.sources.files import load_snapshot

    if created := executor == "simulated" and not state.exists():
        make_directory(state.parent)
        SimulatedCluster.create(state, load_snapshot(source)).close()
    with open_cluster(executor, state, allow_mig=allow_mig) as cluster:
        if executor == "simulated" and not created:
            _refuse_other_source(source, state, cluster.snapshot().cluster)
        yield cluster


def _refuse_other_source(source: str, state: Path, found: Cluster) -> None:
    """Raise if a simulated cluster was created from another source; a policy alone suits every cluster."""
    from gpuplan.models.errors import BadInputError, PlannerError
    from gpuplan.planner.apply.standing import is_other_cluster
    from gpuplan.planner.sources.files import load_snapshot

    try:
        meant = load_snapshot(source).cluster
    except BadInputError:
        return
    if is_other_cluster(meant, found):
        raise PlannerError(
            f"{state} is the simulated cluster of another source: expected nodes of {source}, such as "
            f"{_first_node(meant)}, found {_first_node(found)}.\n"
            "Give another --state, or the SOURCE that it was created from; a folder with nothing but a "
            "policy.yaml suits every cluster."
        )


def _first_node(cluster: Cluster) -> str:
    return min((node.name for node in cluster.nodes), default="none")
