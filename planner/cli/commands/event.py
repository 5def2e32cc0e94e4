"""`gpuplan event`: a notice that nodes are lost or serviced is recorded, and answered with a plan."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gpuplan.planner.cli.options import ANY_PATH, STATE, EntityName, Parsed, show_spinner
from gpuplan.planner.cli.outputs import (
    EXIT_CHANGES,
    NewFile,
    WritingCommand,
    detailed_exitcode_option,
    layout_options,
    say,
    say_json,
    show_text,
)

if TYPE_CHECKING:
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.notices import Notice

SIMULATED: Final = "simulated"
SLURM: Final = "slurm"
_RELATIVE: Final = re.compile(r"\+(.+)")


def _instant_text(text: str) -> str:
    """A text of `instant`: `+120s` from the cluster's present time on, or `2026-11-20T18:00:00Z`."""
    from datetime import UTC, datetime

    try:
        instant(text, datetime(2000, 1, 1, tzinfo=UTC))
    except (ValueError, OverflowError):
        raise ValueError(f"expected +120s, or a time such as 2026-11-20T18:00:00Z, found {text!r}") from None
    return text


_INSTANT: Final = Parsed("+duration|time", _instant_text)


def instant(text: str, now: datetime) -> datetime:
    """The instant of a text; ValueError if it is neither form."""
    from pydantic import TypeAdapter

    from gpuplan.models.units import Timestamp, parse_seconds

    if (match := _RELATIVE.fullmatch(text)) is not None:
        return now + timedelta(seconds=parse_seconds(match[1]))
    if "T" not in text:
        raise ValueError(text)  # a bare number would be read as seconds since 1970
    found: datetime = TypeAdapter(Timestamp).validate_python(text)
    return found


@click.command(
    "event",
    cls=WritingCommand,
    epilog="Example: gpuplan event simulated spot-notice --node h100-1 --at +120s --policy demo/policy.yaml "
    "-o plan.json",
)
@click.argument("source", type=ANY_PATH)
@click.argument("kind", type=click.Choice(["spot-notice", "maintenance"]))
@click.option(
    "--node", "nodes", multiple=True, required=True, type=EntityName("node"), help="May be repeated."
)
@click.option("--at", required=True, type=_INSTANT, help="When the nodes are lost or the service begins.")
@click.option("--until", type=_INSTANT, help="When a maintenance ends, which needs it.")
@click.option(
    "--policy",
    "policy_file",
    type=ANY_PATH,
    help="Policy file; by default policy.yaml in a SOURCE that is a directory, else the default policy.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the search.")
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    default=STATE,
    show_default=True,
    help="File of the simulated cluster.",
)
@click.option("-o", "--out", type=NewFile(), help="Write the plan to this file.")
@layout_options
@detailed_exitcode_option
def event_command(
    source: str,
    kind: str,
    out: Path | None,
    as_json: bool,
    plain: bool,
    detailed_exitcode: bool,
    **given: Any,
) -> int:
    """
    Answer a notice at once: nodes of SOURCE are lost or serviced.

    SOURCE is `simulated` or `slurm`, where the notice is recorded, or a snapshot, where only the plan has it.
    The plan is greedy's: jobs that would not end before the time leave the nodes, by migration or with a
    checkpoint. If the time is more than a slot of the policy away (an hour by default), the plan only avoids
    starts: give the notice again within that time. A maintenance needs `--until`.
    """
    from datetime import UTC, datetime

    from gpuplan.planner.notices import answer, leaving_later, left_behind
    from gpuplan.planner.plan_file.plan_file import plan_file_text, save_plan
    from gpuplan.planner.render.plan.text import plan_text
    from gpuplan.planner.sources.files import default_policy_path, load_policy

    if source == "local" and not Path(source).exists():
        raise click.UsageError(
            "A host takes no notices: expected simulated, slurm or a snapshot, such as one of "
            "`gpuplan snapshot --from local`."
        )
    live = source in (SIMULATED, SLURM) and not Path(source).exists()
    policy_file = given["policy_file"] or (None if live else default_policy_path(source))
    policy = load_policy(policy_file)
    snapshot, notice = _recorded(given, kind, source, live=live)
    with show_spinner("planning"):
        plan = answer(snapshot, policy, notice, seed=given["seed"], created_at=datetime.now(UTC))
    plan = plan.model_copy(update={"policy_file": policy_file})
    if out is not None:
        save_plan(plan, out)
    if as_json:
        say_json(plan_file_text(plan), nl=False)
    else:
        show_text(plan, plan_text, plain=plain, verbose=False, path=None if out is None else str(out))
    for sentence in left_behind(plan, notice):
        say(f"Warning: {sentence}", err=True)
    if sentence := leaving_later(plan, notice):
        say(sentence, err=True)
    return EXIT_CHANGES if detailed_exitcode and plan.has_changes else 0


def _recorded(given: dict[str, Any], kind: str, source: str, *, live: bool) -> tuple[Snapshot, Notice]:
    """The snapshot with the notice; a cluster that is `live` has it from now on."""
    from gpuplan.planner.executors.simulated import SimulatedCluster
    from gpuplan.planner.notices import Notice, NoticeKind, require_sensible, with_notice
    from gpuplan.planner.sources.files import load_snapshot

    def notice_for(snapshot: Snapshot) -> Notice:
        now, until = snapshot.taken_at, given["until"]
        nodes = tuple(dict.fromkeys(given["nodes"]))
        ends = None if until is None else instant(until, now)
        notice = Notice(NoticeKind(kind), nodes, instant(given["at"], now), ends)
        require_sensible(notice, snapshot)
        return notice

    if not live:
        snapshot = load_snapshot(source)
        notice = notice_for(snapshot)
        return with_notice(snapshot, notice), notice
    if source == SLURM:
        from gpuplan.planner.executors.slurm.cluster import SlurmCluster
        from gpuplan.planner.executors.slurm.steps import announce

        slurm = SlurmCluster()
        notice = notice_for(slurm.snapshot())
        announce(notice)
        return slurm.snapshot(), notice
    with SimulatedCluster(given["state"]) as cluster:
        notice = notice_for(cluster.snapshot())
        cluster.announce(notice.reservation, drains=notice.drains)
        return cluster.snapshot(), notice
