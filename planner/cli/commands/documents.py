"""`gpuplan init`, `snapshot`, `validate`, `schema`: write, read, check and describe documents; `doctor`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from gpuplan.planner.cli.options import (
    ANY_PATH,
    DURATION,
    STATE,
    merge_options,
    show_spinner,
    stray_option,
    telemetry_reader,
    window_seconds,
)
from gpuplan.planner.cli.outputs import NewFile, WritingCommand, json_option, say, say_json, show_json

if TYPE_CHECKING:
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.sources.slurm.slurm import SlurmReading

# As `STARTERS` of planner/sources/files.py, which is imported when the command runs.
_STARTERS = ("training", "inference", "research", "batch")


@click.command("init", epilog="Example: gpuplan init demo && gpuplan plan demo")
@click.argument("folder", metavar="[NAME]", type=click.Path(path_type=Path), default="demo")
@click.option(
    "--for",
    "kind",
    type=click.Choice(_STARTERS),
    default="training",
    show_default=True,
    help="Use of the cluster, which decides the jobs and the policy.",
)
def init_command(folder: Path, kind: str) -> None:
    """
    Write a small scenario and a policy with its reasons.

    NAME is a new folder, `demo` by default: five nodes, two queues, a few jobs, and a policy to edit.
    """
    from gpuplan.planner.sources.files import write_starter

    written = write_starter(folder, kind)
    say(f"Wrote {', '.join(path.name for path in written)} to {folder}.", err=True)
    say(f"Next: gpuplan plan {folder}", err=True)


_Value = TypeVar("_Value")

_OPTIONS = {
    "local": {"state", "allow_mig"},
    "nvml": {"watch"},
    "openb": {"nodes", "pods", "at"},
    "simulated": {"state"},
    "slurm": {"managed"},
    "slurm-files": {"folder", "managed"},
    "slurmrestd": {"managed", "url"},
    "synthetic": {"profile", "seed"},
}
_MOST_NOTES = 50
DOCUMENTS = ("snapshot", "policy", "plan", "scenario")


@click.command(
    "snapshot",
    cls=WritingCommand,
    epilog="Example: gpuplan snapshot --from simulated -o snapshot.json",
)
@click.argument("source", type=ANY_PATH, required=False)
@click.option(
    "--from",
    "kind",
    type=click.Choice(list(_OPTIONS)),
    help="What to read instead of SOURCE: the queue of this host, its GPUs, a Slurm cluster by its commands, "
    "from files with their output or by slurmrestd, the simulated cluster, the openb trace, or a synthetic "
    "workload.",
)
@merge_options
@click.option("--watch", type=DURATION, default=0, help="nvml: look at the GPUs for this time, as 30s.")
@click.option(
    "--folder", type=click.Path(path_type=Path), help="slurm-files: folder with nodes.json and jobs.json."
)
@click.option(
    "--url", help="slurmrestd: unix:///path/to/socket or http://host:port; the token is in SLURM_JWT."
)
@click.option(
    "--managed",
    is_flag=True,
    help="slurm: plan only the jobs that are handed to gpuplan, as `apply --executor slurm` does.",
)
@click.option("--nodes", type=click.Path(path_type=Path), help="openb: node list (CSV).")
@click.option("--pods", type=click.Path(path_type=Path), help="openb: pod list (CSV).")
@click.option("--at", type=int, help="openb: second of the trace; without it every pod waits.")
@click.option("--profile", type=click.Path(path_type=Path), help="synthetic: workload profile (YAML).")
@click.option("--seed", type=int, default=0, show_default=True, help="synthetic: seed.")
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    default=STATE,
    show_default=True,
    help="simulated: file. local: folder of the queue, by default .gpuplan/host.",
)
@click.option("--allow-mig", is_flag=True, help="local: plans may change MIG layouts.")
@click.option(
    "-o",
    "--out",
    type=NewFile(folder=True),
    help="File or existing directory to write; standard output without it.",
)
def snapshot_command(
    source: str | None,
    kind: str | None,
    merge: tuple[Path | str, ...],
    over: int,
    watch: int,
    folder: Path | None,
    url: str | None,
    managed: bool,
    nodes: Path | None,
    pods: Path | None,
    at: int | None,
    profile: Path | None,
    seed: int,
    state: Path,
    allow_mig: bool,
    out: Path | None,
) -> None:
    """
    Read a real system, a trace or a generator into a snapshot.

    With --merge, the facts of hosts are added to it, or to the snapshot SOURCE.
    """
    from gpuplan.planner.io.atomic_write import write_atomically
    from gpuplan.planner.sources.files import load_snapshot, snapshot_text, write_scenario
    from gpuplan.planner.text_format import format_count

    _check_usage(kind, source, merge)
    window = window_seconds(over, merge)
    notes: tuple[str, ...] = ()
    with show_spinner(f"reading {kind or source}"):
        match kind:
            case None:
                snapshot = load_snapshot(str(source))
            case "local":
                snapshot = _read_local(state, allow_mig=allow_mig)
            case "nvml":
                snapshot = _read_nvml(watch)
            case "openb":
                from gpuplan.planner.sources.traces.openb import read_openb

                snapshot = read_openb(_required(nodes, "--nodes"), _required(pods, "--pods"), at=at)
            case "slurm" | "slurm-files" | "slurmrestd":
                snapshot, notes = _read_slurm(kind, folder, url, managed=managed)
            case "synthetic":
                from gpuplan.planner.sources.synthetic import (
                    generate_snapshot,
                    load_workload_profile,
                )

                snapshot = generate_snapshot(
                    load_workload_profile(_required(profile, "--profile")), seed=seed
                )
            case _:
                from gpuplan.planner.executors.simulated import SimulatedCluster

                with SimulatedCluster(state) as cluster:
                    snapshot = cluster.snapshot()
    _say_notes(notes)
    if merge:
        snapshot = _with_facts(snapshot, merge, window)
    if out is None:
        say_json(snapshot_text(snapshot), nl=False)
        return
    if out.is_dir():
        write_scenario(snapshot, out)
    else:
        write_atomically(out, snapshot_text(snapshot))
    amount = (
        f"{format_count(len(snapshot.cluster.nodes), 'node')} and {format_count(len(snapshot.jobs), 'job')}"
    )
    say(f"Wrote {amount} to {out}.", err=True)


def _check_usage(kind: str | None, source: str | None, merge: tuple[Path | str, ...]) -> None:
    """Raise a usage error unless there is one thing to read, with options for it alone."""
    if (kind is None) == (source is None):
        raise click.UsageError("expected one of --from and SOURCE.")
    if source is not None and not merge:
        raise click.UsageError("SOURCE is a snapshot already; expected --merge with facts to add to it.")
    own = _OPTIONS.get(kind or "", set())
    if stray := stray_option(set().union(*_OPTIONS.values()) - own):
        name = stray.removeprefix("--").replace("-", "_")
        owners = " or ".join(other for other, options in _OPTIONS.items() if name in options)
        raise click.UsageError(f"{stray} is for --from {owners}.")


def _read_slurm(
    kind: str, folder: Path | None, url: str | None, *, managed: bool
) -> tuple[Snapshot, tuple[str, ...]]:
    from gpuplan.planner.sources.slurm.slurm import read_slurm_files, read_slurm_live

    match kind:
        case "slurm":
            found = read_slurm_live(managed=managed)
        case "slurmrestd":
            found = _read_slurm_rest(_required(url, "--url"), managed=managed)
        case _:
            found = read_slurm_files(_required(folder, "--folder"), managed=managed)
    return found.snapshot, found.notes


def _read_slurm_rest(url: str, *, managed: bool) -> SlurmReading:
    from gpuplan.models.errors import PlannerError

    try:
        from gpuplan.planner.sources.slurm.rest import read_slurm_rest
    except ImportError:
        raise PlannerError(
            "Reading from slurmrestd needs httpx.\nInstall it: pip install 'gpuplan[rest]'."
        ) from None
    return read_slurm_rest(url, managed=managed)


def _read_nvml(watch: int) -> Snapshot:
    from gpuplan.planner.sources.nvml.nvml import read_host, this_host

    found = read_host(this_host(), watch_seconds=watch / 1000)
    _say_notes(found.findings, "Health of the GPUs:")
    _say_notes(found.notes, "Not understood:")
    return found.snapshot


def _read_local(state: Path, *, allow_mig: bool) -> Snapshot:
    from gpuplan.planner.cli.clusters import open_host

    found = open_host(state, allow_mig=allow_mig).read()
    _say_notes(found.findings, "Health of the GPUs:")
    _say_notes(found.notes, "Not understood:")
    return found.snapshot


def _with_facts(snapshot: Snapshot, sources: tuple[Path | str, ...], window: int) -> Snapshot:
    """The snapshot with the facts of the hosts in these files and folders, and then of these URLs."""
    from gpuplan.planner.sources.dcgm.merge import merge_telemetry
    from gpuplan.planner.sources.files import load_snapshots
    from gpuplan.planner.sources.nvml.merge import merge_hosts

    with show_spinner("merging"):
        paths = tuple(each for each in sources if isinstance(each, Path))
        merged = merge_hosts(snapshot, load_snapshots(paths))
        notes = merged.notes
        for url in (each for each in sources if isinstance(each, str)):
            telemetry = telemetry_reader(window)(url, snapshot.taken_at)
            merged = merge_telemetry(merged.snapshot, telemetry)
            notes += merged.notes
    _say_notes(notes, "Merged, and to be looked at:")
    return merged.snapshot


def _say_notes(
    notes: tuple[str, ...], heading: str = "Not understood, so held, or left where it is:"
) -> None:
    """Say what of a cluster is not in its snapshot, on standard error: each reason once."""
    from gpuplan.models.errors import truncated_names

    if notes:
        say(heading, err=True)
    subjects: dict[str, list[str]] = {}
    for each in notes:
        subject, _, reason = each.partition(": ")
        subjects.setdefault(reason, []).append(subject)
    for reason, alike in list(subjects.items())[:_MOST_NOTES]:
        say(f"  {truncated_names(alike)}: {reason}", err=True)
    if (more := len(subjects) - _MOST_NOTES) > 0:
        say(f"  … and {more:,} more reasons", err=True)


def _required(value: _Value | None, option: str) -> _Value:
    if value is None:
        raise click.UsageError(f"{option} is required for this source.")
    return value


@click.command("validate", epilog="Example: gpuplan validate scenarios/quickstart")
@click.argument("source", type=ANY_PATH)
@click.option("--strict", is_flag=True, help="Refuse a snapshot that refers to lost nodes or GPUs.")
@json_option
def validate_command(source: str, *, strict: bool, as_json: bool) -> int:
    """
    Report all problems of SOURCE at once, with file and line.

    Losses of the cluster, such as a missing node on which a job runs, are reported and do not make SOURCE
    invalid. Warnings report what is allowed but is probably a mistake: GPU models that no node has, replicas
    that no node can hold, quotas larger than the cluster.
    """
    from gpuplan.models.errors import BadInputError
    from gpuplan.models.health.findings import health_findings
    from gpuplan.models.validation.input_warnings import input_warnings
    from gpuplan.planner.sources.files import default_policy_path, inspect_snapshot, load_policy
    from gpuplan.planner.text_format import format_count

    try:
        with show_spinner("reading"):
            snapshot, damages = inspect_snapshot(source, strict=strict)
            policy = load_policy(default_policy_path(source))
    except BadInputError as error:
        if not as_json:
            raise
        problems = [{"place": each.place, "message": each.message} for each in error.problems]
        show_json({"valid": False, "problems": problems})
        return error.exit_code
    warnings = (*map(str, health_findings(snapshot, policy.health)), *input_warnings(snapshot))
    nodes, running = snapshot.cluster.nodes, len(snapshot.jobs) - len(snapshot.waiting)
    figures = {
        "nodes": len(nodes),
        "gpus": sum(node.gpu_count for node in nodes),
        "queues": len(snapshot.queues),
        "running": running,
        "waiting": len(snapshot.waiting),
    }
    if as_json:
        damaged = [{"place": each.place, "message": each.message} for each in damages]
        show_json({"valid": True, **figures, "damaged": damaged, "warnings": warnings})
        return 0
    for damage in damages:
        say(f"Damaged: {damage}", err=True)
    for warning in warnings:
        say(f"Warning: {warning}", err=True)
    say(
        f"Valid: {format_count(figures['nodes'], 'node')}, {format_count(figures['gpus'], 'GPU')}, "
        f"{format_count(figures['queues'], 'queue')}, {running:,} running and "
        f"{format_count(figures['waiting'], 'waiting job')}."
    )
    return 0


@click.command("schema", epilog="Example: gpuplan schema snapshot > snapshot.schema.json")
@click.argument("document", type=click.Choice(DOCUMENTS))
@click.option("--markdown", is_flag=True, help="Print a reference page instead: each field with its meaning.")
def schema_command(document: str, *, markdown: bool) -> None:
    """Print the JSON Schema of a document."""
    import json

    from gpuplan.planner.schemas import reference_page, schema

    made = schema(document)
    if markdown:
        say(reference_page(made), nl=False)
    else:
        say_json(json.dumps(made, indent=2, sort_keys=True))


@click.command("doctor", epilog="Example: gpuplan doctor")
@click.option(
    "--url", default="", help="Also ask the slurmrestd there, as `snapshot --from slurmrestd` does."
)
@json_option
def doctor_command(*, url: str, as_json: bool) -> None:
    """
    Check the installation: versions, solvers, NVML, Slurm.

    Of Slurm, where its commands are: the cluster and its version, whether it can be read, whether this user
    may apply plans, and whether another apply holds the lock. Nothing is changed.

    Ends with 1 if a check fails, even for a solver that no plan would use. A missing optional part is no
    failure.
    """
    from gpuplan.planner.doctor import run_checks

    if as_json:
        findings = list(run_checks(url))
        show_json({"findings": [asdict(finding) for finding in findings]})
        sys.exit(1 if any(finding.works is False for finding in findings) else 0)
    failed = False
    for finding in run_checks(url):
        mark = {True: "ok  ", False: "FAIL", None: "--  "}[finding.works]
        say(f"{mark}  {finding.subject:<22} {finding.detail}")
        if finding.advice:
            say(f"      {finding.advice}")
        failed |= finding.works is False
    sys.exit(1 if failed else 0)
