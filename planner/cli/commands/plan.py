"""`gpuplan plan`, `search-log`, `show`, `diff`, `verify`: make a plan and review it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuplan.planner.cli.options import (
    ANY_PATH,
    DURATION,
    FRACTION,
    EntityName,
    PlanFile,
    current_user,
    show_spinner,
    stray_option,
)
from gpuplan.planner.cli.outputs import (
    EXIT_CHANGES,
    PICTURE,
    NewFile,
    WritingCommand,
    all_option,
    ascii_option,
    detailed_exitcode_option,
    json_option,
    layout_options,
    say,
    say_json,
    show,
    show_json,
    show_text,
)
from gpuplan.planner.cli.plan_request import (
    overridden,
    plan_with_live_view,
    planning_options,
    read_plan_request,
    without_damage,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.plan.solution import Milestone
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.whatif.policy_review import PolicyReview


_VIOLATIONS_SHOWN = 20
_WARNINGS_SHOWN = 3


@click.command(
    "plan",
    cls=WritingCommand,
    epilog="Example: gpuplan plan scenarios/quickstart -o plan.json --report plan.html",
)
@click.argument("source", type=ANY_PATH)
@planning_options
@click.option(
    "--after",
    type=PlanFile(),
    help="Last plan: its promises are kept, and if nothing has changed since, the new plan changes nothing.",
)
@click.option("-o", "--out", type=NewFile(), help="Save the plan to this file.")
@click.option("--report", type=NewFile(), help="Write an HTML report to this file.")
@click.option(
    "--search-log",
    type=NewFile(),
    help="Log the search to this file while it runs (JSON lines).",
)
@layout_options
@all_option
@detailed_exitcode_option
def plan_command(
    source: str,
    after: str | None,
    out: Path | None,
    report: Path | None,
    search_log: Path | None,
    as_json: bool,
    plain: bool,
    everything: bool,
    detailed_exitcode: bool,
    **planning: Any,
) -> int:
    """
    Plan one epoch of SOURCE: what starts, stops, moves and waits.

    SOURCE is a snapshot: a directory of YAML or JSON documents, one file, or - for standard input.

    Ctrl-C ends the search with the best plan so far; a second Ctrl-C ends gpuplan without a plan.
    """
    from gpuplan.planner.apply.promises import carry_over_promises
    from gpuplan.planner.plan_file.plan_file import load_plan, save_plan

    question = read_plan_request(source, **planning)
    snapshot, last = question.snapshot, None
    _warn_of_unused_scaling(snapshot)
    if after is not None:
        with show_spinner("reading the last plan"):
            last = load_plan(after)
            snapshot = carry_over_promises(snapshot, last)
    seen: list[Milestone] = []
    plan = plan_with_live_view(
        snapshot,
        question.policy,
        seed=question.seed,
        began=question.began,
        log=search_log,
        last=last,
        seen=seen,
    )
    plan = plan.model_copy(update={"policy_file": question.policy_file, "planned_by": current_user()})
    saved = None
    try:
        with show_spinner("writing"):
            if out is not None:
                save_plan(plan, out)
                saved = out
            if report is not None:
                _write_report(plan, seen, report)
    finally:
        # What took minutes to plan is shown even if the file cannot be written.
        print_plan(plan, as_json=as_json, plain=plain, everything=everything, path=saved)
    return EXIT_CHANGES if detailed_exitcode and plan.has_changes else 0


def _warn_of_unused_scaling(snapshot: Snapshot) -> None:
    """Say which jobs would have other sizes if they were stated as they were probably meant."""
    from gpuplan.models.validation.input_warnings import unused_scaling
    from gpuplan.planner.text_format import format_count

    found = list(unused_scaling(snapshot))
    for warning in found[:_WARNINGS_SHOWN]:
        say(f"Warning: {warning}", err=True)
    if (more := len(found) - _WARNINGS_SHOWN) > 0:
        say(f"The same of {format_count(more, 'other job')}; `gpuplan validate` names them.", err=True)


def _write_report(plan: Plan, seen: list[Milestone], path: Path) -> None:
    from gpuplan.planner.io.atomic_write import write_atomically
    from gpuplan.planner.render.reports.plan import plan_report

    write_atomically(path, plan_report(plan, seen))


def print_plan(plan: Plan, *, as_json: bool, plain: bool, everything: bool, path: Path | None) -> None:
    """Print a plan as its document or for review."""
    if as_json:
        from gpuplan.planner.plan_file.plan_file import plan_file_text as plan_json

        say_json(plan_json(plan), nl=False)
        return
    from gpuplan.planner.render.plan.text import plan_text

    show_text(plan, plan_text, plain=plain, verbose=everything, path=None if path is None else str(path))


@click.command("show", epilog="Example: gpuplan show plan.json --all")
@click.argument("plan_file", type=PlanFile())
@click.argument("job", type=EntityName("job"), required=False)
@layout_options
@all_option
def show_command(plan_file: str, job: str | None, as_json: bool, plain: bool, everything: bool) -> None:
    """
    Show a saved plan in the same form as after planning.

    With JOB only what it says about this job: its actions, its places, and why it waits.
    """
    from gpuplan.planner.explain.answer import job_named
    from gpuplan.planner.plan_file.excerpt import job_entries, read_excerpt
    from gpuplan.planner.plan_file.plan_file import load_plan

    if job is not None:
        from gpuplan.planner.render.plan.text import job_entries_text

        part = read_excerpt(plan_file, job)
        plan = part.plan if part else load_plan(plan_file)
        found = job_entries(plan, part.job if part else job_named(plan, job, source=plan_file))
        show(found, job_entries_text, as_json=as_json, plain=plain, plan=plan)
        return
    plan = load_plan(plan_file)
    print_plan(plan, as_json=as_json, plain=plain, everything=everything, path=Path(plan_file))


@click.command("diff", epilog="Example: gpuplan diff plan.json")
@click.argument("plan_file", type=PlanFile())
@click.argument("source", type=ANY_PATH, required=False)
@click.option(
    "--policy",
    "old_policy",
    type=ANY_PATH,
    help="Review a policy: this is the old one, PLAN_FILE the new one; SOURCE is planned under both.",
)
@click.option("--time-limit", type=DURATION, help="policy: wall clock for each plan, such as 10s.")
@click.option(
    "--solver",
    type=click.Choice(["auto", "milp", "cpsat", "greedy"]),
    default="auto",
    show_default=True,
    help="policy: solver of both plans; auto: as the policies say.",
)
@click.option("--stop-gap", type=FRACTION, help="policy: stop at this proven gap, such as 1%.")
@click.option("--seed", type=int, default=0, show_default=True, help="policy: seed of the solvers.")
@click.option("--deterministic", is_flag=True, help="policy: stop solvers by work done, not by the clock.")
@layout_options
@all_option
@detailed_exitcode_option
def diff_command(
    plan_file: str,
    source: str | None,
    old_policy: str | None,
    as_json: bool,
    plain: bool,
    everything: bool,
    detailed_exitcode: bool,
    **planning: Any,
) -> int:
    """
    Compare before and after a plan; with SOURCE, its drift too.

    Shows jobs, nodes, queues and GPU models.

    With --policy OLD the arguments are NEW and SOURCE, and the plans of SOURCE under both policies are
    compared: which jobs gain or lose, and which work is lost. --detailed-exitcode is then 10 if any job gains
    or loses.
    """
    if old_policy is not None:
        from gpuplan.planner.render.whatif.answers import review_text

        if source is None:
            raise click.UsageError("--policy OLD needs two arguments: the new policy, and SOURCE.")
        found = review_policies((old_policy, plan_file), source, planning)
        show(found, review_text, as_json=as_json, plain=plain, verbose=everything)
        return EXIT_CHANGES if detailed_exitcode and not found.same else 0
    if stray := stray_option(planning):
        raise click.UsageError(f"{stray} is for --policy OLD; a saved plan is not planned again.")
    from gpuplan.planner.apply.plan_view import with_untold
    from gpuplan.planner.apply.standing import promises_recorded_in, refuse_other_cluster
    from gpuplan.planner.diff.diff import diff
    from gpuplan.planner.plan_file.plan_file import load_plan
    from gpuplan.planner.render.plan.diff import diff_text
    from gpuplan.planner.sources.files import load_snapshot

    plan, live = load_plan(plan_file), load_snapshot(source) if source else None
    if live is not None:
        refuse_other_cluster(plan, live)
        live = with_untold(live, plan, promises=not promises_recorded_in(plan, live))
    show(diff(plan, live), diff_text, as_json=as_json, plain=plain, verbose=everything, path=plan_file)
    return EXIT_CHANGES if detailed_exitcode and plan.has_changes else 0


@click.command("verify", epilog="Example: gpuplan verify plan.json scenarios/quickstart")
@click.argument("plan_file", type=PlanFile())
@click.argument("source", type=ANY_PATH)
@json_option
def verify_command(plan_file: str, source: str, *, as_json: bool) -> int:
    """
    Check each rule and recompute the objective independently.

    If SOURCE has changed since the plan, the check covers the cluster in SOURCE after the remaining actions.
    """
    from gpuplan.models.plan.actions import changes_of
    from gpuplan.planner.apply.standing import refuse_other_cluster
    from gpuplan.planner.apply.verdict import verdict_on
    from gpuplan.planner.plan_file.plan_file import load_plan
    from gpuplan.planner.sources.files import load_snapshot
    from gpuplan.planner.text_format import format_count

    plan, snapshot = load_plan(plan_file), load_snapshot(source)
    refuse_other_cluster(plan, snapshot)
    found = verdict_on(plan, snapshot)
    if as_json:
        show_json({"verified": found.verified, **asdict(found)})
        return 0 if found.verified else 1
    violations, done = found.violations, found.actions_done
    for violation in violations[:_VIOLATIONS_SHOWN]:
        say(str(violation))
    if broken := len(violations):
        if broken > _VIOLATIONS_SHOWN:
            say(f"… and {broken - _VIOLATIONS_SHOWN:,} more")
        where = ""
        if found.source_changed:
            how = "" if source == "-" else f"; `gpuplan diff {plan_file} {source}` shows how"
            where = f": {_what_differs(plan, snapshot)}{how}"
        say(f"The plan breaks a rule in {format_count(broken, 'place')}{where}.")
        return 1
    if found.source_changed:
        changes = len(changes_of(plan.actions))
        left = changes - len(done)
        rest = f"; the other {left:,} would break no rule" if left else ", and no rule is broken"
        say(
            f"Verified: {_what_differs(plan, snapshot)}; {len(done):,} of its "
            f"{format_count(changes, 'action')} {'is' if len(done) == 1 else 'are'} done "
            f"there{rest}."
        )
        return 0
    if not found.verified:
        say(f"The plan states the terms {found.stated_terms}, its placements give {found.terms}.")
        return 1
    what = format_count(len(plan.placements), "placement")
    if plan.planned:
        what = f"{what} and {format_count(len(plan.planned), 'later start')}"
    breaks = "breaks" if what == "1 placement" else "break"
    say(f"Verified: {what} {breaks} no rule; objective {found.objective:,} as stated.")
    return 0


def _what_differs(plan: Plan, snapshot: Snapshot) -> str:
    """How a snapshot that is not the plan's own stands to it in time."""
    from gpuplan.models.units import print_timestamp

    if snapshot.taken_at >= plan.snapshot.taken_at:
        return "SOURCE has changed since the plan"
    meant, found = print_timestamp(plan.snapshot.taken_at), print_timestamp(snapshot.taken_at)
    return f"SOURCE of {found} is older than the plan's snapshot of {meant}"


# `gpuplan diff --policy OLD NEW SOURCE`: the jobs that gain or lose by a change of policy.


def review_policies(files: tuple[str, str], source: str, planning: Mapping[str, Any]) -> PolicyReview:
    """Plan a snapshot under the old and the new policy, in parallel if there are two processors."""
    from gpuplan.planner.sources.files import load_policy, load_snapshot
    from gpuplan.planner.whatif.policy_review import review
    from gpuplan.planner.whatif.runner import Processes, processors

    with show_spinner("reading"):
        snapshot = without_damage(load_snapshot(source)).canonical()
        old, new = (overridden(load_policy(file), planning) for file in files)
    with show_spinner("planning under both policies"):
        return review(snapshot, old, new, Processes(min(2, processors())), seed=planning["seed"])


@click.command("search-log", cls=WritingCommand, epilog="Example: gpuplan search-log search.jsonl -o gap.svg")
@click.argument("log_file", type=ANY_PATH)
@click.option("-o", "--out", type=PICTURE, help="Draw the gap over time to this file: .svg or .png.")
@ascii_option
def search_log_command(log_file: str, out: Path | None, plain: bool) -> None:
    """Show the course of a search from a log of plan --search-log."""
    from gpuplan.planner.io.search_log import read_search
    from gpuplan.planner.render.logs import search_text

    search = read_search(log_file)
    show_text(search, search_text, plain=plain)
    if out is None:
        return
    from gpuplan.planner.io.atomic_write import write_atomically
    from gpuplan.planner.render.charts import gap_chart

    write_atomically(out, gap_chart(search, out.suffix.lower().removeprefix(".")))
