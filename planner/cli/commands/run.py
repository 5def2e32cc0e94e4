"""`gpuplan run` and `history`: plan epoch after epoch, and read the results."""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuplan.planner.cli.clusters import (
    allow_mig_option,
    audit_option,
    check_executor,
    drift_option,
    open_for_source,
    state_option,
)
from gpuplan.planner.cli.options import (
    ANY_PATH,
    DURATION,
    EXECUTORS,
    PLANS,
    Parsed,
    current_user,
    is_terminal,
    merge_options,
    stray_option,
    telemetry_reader,
    window_seconds,
)
from gpuplan.planner.cli.outputs import NewFile, WritingCommand, layout_options, say_json, show_text
from gpuplan.planner.cli.plan_request import overridden, planning_options

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.models.policy.approval import Approval
    from gpuplan.models.policy.policy import Policy

_FOLDER = Path(".gpuplan")
_LOOPBACK = "127.0.0.1"
_OF_APPLY = ("audit_file", "drift_mode")


def _address(text: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:9464`, `[::1]:9464`, or a port alone, bound to the loopback address."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"expected HOST:PORT such as {_LOOPBACK}:9464, found {text!r}")
    return host.strip("[]") or _LOOPBACK, int(port)


@click.command(
    "run",
    cls=WritingCommand,
    epilog="Example: gpuplan run scenarios/quickstart --every 60s --executor simulated --apply",
)
@click.argument("source", type=ANY_PATH)
@click.option(
    "--every", type=DURATION, default="60s", show_default=True, help="Time from one epoch to the next."
)
@click.option("--epochs", type=click.IntRange(min=1), help="Number of epochs; by default until a signal.")
@planning_options
@click.option(
    "--executor",
    type=click.Choice(EXECUTORS),
    help="Plan for this cluster; a simulated one is created from SOURCE if it does not exist.",
)
@state_option
@merge_options
@allow_mig_option
@click.option("--apply", "applies", is_flag=True, help="Apply plans, as far as the policy allows it.")
@audit_option
@drift_option
@click.option("--advance", type=DURATION, help="Advance the simulated clock by this before each epoch.")
@click.option(
    "--plans",
    type=click.Path(path_type=Path),
    default=PLANS,
    show_default=True,
    help="Folder of the plans; latest.json in it is the last one.",
)
@click.option(
    "--keep-plans", type=click.IntRange(min=1), default=100, show_default=True, help="Plans kept there."
)
@click.option(
    "--history",
    "history_file",
    type=click.Path(path_type=Path),
    default=_FOLDER / "history.db",
    show_default=True,
    help="Database with the result of each epoch.",
)
@click.option(
    "--listen",
    type=Parsed("address", _address),
    help="Serve metrics at this address, such as 127.0.0.1:9464.",
)
@click.option("--metrics-file", type=NewFile(), help="Write metrics to this .prom file.")
@click.option(
    "--log",
    "log_format",
    type=click.Choice(["text", "json"]),
    help="Write all events to standard error in this format; default: text on a terminal, else warnings.",
)
def run_command(
    source: str,
    every: int,
    epochs: int | None,
    executor: str | None,
    state: Path,
    merge: tuple[Path | str, ...],
    over: int,
    allow_mig: bool,
    applies: bool,
    audit_file: Path,
    drift_mode: str | None,
    advance: int | None,
    plans: Path,
    keep_plans: int,
    history_file: Path,
    listen: tuple[str, int] | None,
    metrics_file: Path | None,
    log_format: str | None,
    **planning: Any,
) -> int:
    """
    Plan SOURCE epoch after epoch, until SIGTERM or Ctrl-C.

    After a signal, the step in progress finishes first.

    Each epoch reads SOURCE and the policy again, saves its plan, and records the result. With --executor it
    reads the cluster instead of SOURCE, and with --apply it applies its plans.
    """
    import importlib.metadata
    import random
    import time
    from functools import partial

    from gpuplan.models.policy.policy import Drift
    from gpuplan.planner.apply.audit_log import AuditLog
    from gpuplan.planner.io.atomic_write import make_directory
    from gpuplan.planner.service.clusters import LiveCluster
    from gpuplan.planner.service.event_log import LogFormat, logging_to
    from gpuplan.planner.service.history import History
    from gpuplan.planner.service.loop import EpochSchedule, ServiceLoop
    from gpuplan.planner.service.prometheus import MetricsRegistry, serve_metrics
    from gpuplan.planner.service.run_epoch import RunContext
    from gpuplan.planner.service.run_files import HostFacts, LastReadPolicy, PlanStore, policy_reader
    from gpuplan.planner.service.shutdown import stop_on_signals
    from gpuplan.planner.sources.files import load_snapshot

    _refuse_contradictions(source, executor, applies=applies, every=every)
    check_executor(executor)
    window = window_seconds(over, merge)
    urls = [each for each in merge if isinstance(each, str)]
    reader = telemetry_reader(window) if urls else None
    if executor in ("local", "slurm") and (stray := stray_option({"advance"})):
        raise click.UsageError(f"{stray} is for --executor simulated.")
    if planning["strict"] and executor is not None:
        raise click.UsageError("--strict is about SOURCE: expected none with --executor, found it.")

    read, seed = policy_reader(planning["policy_file"], source), planning["seed"]
    policy = LastReadPolicy(lambda: overridden(read(), planning))
    for file in (history_file, audit_file):
        make_directory(file.parent)
    with ExitStack() as stack:
        least = logging.INFO if log_format or is_terminal(sys.stderr) else logging.WARNING
        stack.enter_context(logging_to(sys.stderr, LogFormat(log_format or "text"), least=least))
        history = stack.enter_context(History(history_file))
        stop = stack.enter_context(stop_on_signals())
        live = None
        if executor is not None:
            live = LiveCluster(
                executor=stack.enter_context(open_for_source(executor, source, state, allow_mig=allow_mig)),
                audit=AuditLog(audit_file),
                actor=current_user(),
                now=_now,
                stop=lambda: stop.requested,
                drift_mode=Drift(drift_mode) if drift_mode else None,
                advance=(advance or 0) // 1000,
            )
        reading = live.read if live else partial(load_snapshot, source, strict=planning["strict"])
        hosts = HostFacts(tuple(each for each in merge if isinstance(each, Path)), tuple(urls), reader)
        around = RunContext(
            read=lambda: hosts.merged(reading()),
            policy=policy,
            plans=PlanStore(plans, keep=keep_plans),
            applier=live if applies else None,
            remembers_promises=live is not None,
            seed=seed,
            now=_now,
            stop=stop,
            planned_by=current_user(),
            approval=partial(_approval_in_force, state),
        )
        exposition = MetricsRegistry(importlib.metadata.version("gpuplan"), every=every / 1000)
        if listen is not None:
            serve_metrics(exposition, *listen)
        run = ServiceLoop(
            context=around,
            history=history,
            metrics=exposition,
            pace=EpochSchedule(every / 1000, began=time.monotonic(), draw=random.Random(seed)),  # noqa: S311
            clock=time.monotonic,
            metrics_file=metrics_file,
        )
        run.begin()
        return 0 if run.until_stopped(epochs=epochs) or stop.requested else 1


def _approval_in_force(state: Path, policy: Policy) -> Approval:
    """Return the approval rules of the cluster's policy in force, by default those of the run's policy."""
    from gpuplan.planner.approval.approval_check import policy_in_force

    force = policy_in_force(state.parent, None)
    return force.policy.approval if force else policy.approval


def _refuse_contradictions(source: str, executor: str | None, *, applies: bool, every: int) -> None:
    from gpuplan.models.errors import BadInputError, InputProblem

    if source == "-":
        raise click.UsageError("SOURCE is read for each epoch: expected a directory or a file, found -.")
    if executor is None and (stray := stray_option(("applies", "advance", "state", *_OF_APPLY))):
        raise click.UsageError(f"{stray} needs a cluster: expected --executor, found none.")
    if not applies and (stray := stray_option(_OF_APPLY)):
        raise click.UsageError(f"{stray} is about applying: expected --apply, found none.")
    if every == 0:
        raise click.UsageError("expected an interval above 0 in --every, found 0.")
    # With a mistyped path the run would ignore the policy in it, and the changes it reserves for operators.
    if not Path(source).exists():
        problem = "is not there; expected a directory or a file."
        if source in EXECUTORS:
            problem += (
                f"\n  For that cluster: gpuplan run FOLDER --executor {source}, with the policy in FOLDER."
            )
        raise BadInputError((InputProblem(source, problem),))


def _now() -> datetime:
    from datetime import UTC, datetime

    return datetime.now(UTC)


@click.command("history", epilog="Example: gpuplan history -n 5")
@click.argument("file", type=click.Path(path_type=Path), default=_FOLDER / "history.db")
@click.option("-n", "last", type=click.IntRange(min=1), default=20, show_default=True, help="Epochs shown.")
@click.option("-a", "--all", "everything", is_flag=True, help="All epochs.")
@layout_options
def history_command(file: Path, last: int, everything: bool, as_json: bool, plain: bool) -> None:
    """Show the results of the last epochs of gpuplan run."""
    import json

    from gpuplan.planner.service.history import read_history

    records = read_history(file, last=None if everything else last)
    if as_json:
        say_json(json.dumps({"epochs": [record.model_dump(mode="json") for record in records]}, indent=2))
        return
    from gpuplan.planner.render.logs import history_text

    show_text(records, history_text, plain=plain)
