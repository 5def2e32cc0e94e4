"""The functions of the Python API, which `gpuplan` offers: each imports what it needs when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.plan.solution import Milestone
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.apply.verdict import Verdict
    from gpuplan.planner.explain.explanation import Explanation
    from gpuplan.planner.explain.node import NodeExplanation
    from gpuplan.planner.explain.queue import QueueExplanation
    from gpuplan.planner.simulate.outcome import Simulation
    from gpuplan.planner.whatif.compare import Comparison
    from gpuplan.planner.whatif.patch.scenario import Scenario


def load_snapshot(source: str | PathLike[str] | Mapping[str, Any], *, strict: bool = False) -> Snapshot:
    """
    Read a snapshot: nodes, queues and jobs at one instant.

    All problems of all files are told at once. Jobs that have ended teach the scaling of those like them.

    Parameters
    ----------
    source
        A directory of YAML or JSON documents, one file, `-` for standard input, or the document itself as a
        mapping with the fields of docs/reference/snapshot.md.
    strict
        True: what the world has lost, such as a node on which a job runs, is an error. False: planning begins
        without it and names it in `Plan.findings`.

    Returns
    -------
    Snapshot
        Every collection sorted by name.

    Raises
    ------
    BadInputError
        With every problem found, with file and line where there are any.
    """
    from collections.abc import Mapping
    from os import fspath

    from gpuplan.planner.sources import files

    if isinstance(source, Mapping):
        return files.snapshot_of(source, strict=strict)
    return files.load_snapshot(fspath(source), strict=strict)


def load_policy(source: str | PathLike[str] | Mapping[str, Any] | None = None) -> Policy:
    """
    Read a policy: what plans are to be good at, what they may do, and how long they may take.

    Parameters
    ----------
    source
        A file; a directory with a `policy.yaml` or none; the document itself as a mapping with
        the fields of docs/reference/policy.md. Without it all is at its default.

    Raises
    ------
    BadInputError
        With every problem of the document, with file and line where there are any.
    """
    from collections.abc import Mapping
    from os import fspath
    from pathlib import Path

    from gpuplan.models.policy.policy import Policy
    from gpuplan.planner.sources import files

    if isinstance(source, Mapping):
        return files.made_of(source, Policy, "policy")
    path = None if source is None else fspath(source)
    if path is not None and Path(path).is_dir():
        path = files.default_policy_path(path)
    return files.load_policy(path)


def load_plan(path: str | PathLike[str]) -> Plan:
    """
    Read a plan file, `-` being standard input.

    Raises
    ------
    BadInputError
        There is no such file, it is no plan, or it is of another major format version.
    TamperedError
        The file is not as gpuplan wrote it.
    """
    from os import fspath

    from gpuplan.planner.plan_file import plan_file

    return plan_file.load_plan(fspath(path))


def save_plan(plan: Plan, path: str | PathLike[str]) -> None:
    """
    Write a plan file (docs/plan-format.md), for `gpuplan show`, `diff`, `verify` and `apply`.

    The file is written in one step: a reader sees the old one or the new one, never half of it.

    Raises
    ------
    PlannerError
        It cannot be written there.
    """
    from os import fspath

    from gpuplan.planner.plan_file import plan_file

    plan_file.save_plan(plan, fspath(path))


def plan(
    snapshot: Snapshot,
    policy: Policy | None = None,
    *,
    time_limit: int | str | None = None,
    solver: Literal["auto", "milp", "cpsat", "greedy"] = "auto",
    stop_gap: float | None = None,
    deterministic: bool = False,
    seed: int = 0,
    after: Plan | None = None,
    watch: Callable[[Milestone], None] | None = None,
) -> Plan:
    """
    Plan one epoch: what starts, stops, moves and waits.

    The verifier, which shares no code with the solvers, has judged the plan before it is returned. An
    interruption (KeyboardInterrupt) ends the search with the best plan so far; a second one is passed on.

    Parameters
    ----------
    snapshot
        The cluster; places that it has lost are given up first (`Plan.findings`).
    policy
        What the plan is to be good at; the default policy if left out.
    time_limit
        Wall clock of the epoch instead of the policy's: whole seconds, or a text such as `"10s"` or
        `"500ms"`. With `deterministic` a safety stop at ten times that.
    solver
        Instead of the policy's: `greedy` is no exact solver at all; `auto` is as the policy says.
    stop_gap
        Stop once the plan is proven to be so close to the best one: a fraction from 0 to 1, 0.01 being 1 %.
    deterministic
        Stop solvers by the work done and not by the clock: the same question then always has the same answer.
    seed
        Of the solvers.
    after
        The plan before: its promises are kept, its answer is where the search begins, and a cluster at rest
        after it stays so.
    watch
        Is told how the search goes, with the best objective and the bound, in points.

    Returns
    -------
    Plan
        `actions` say what to do and why, `placements` where each job will be, `waiting` what each other one
        lacks; `solution` has the objective and its proven bound, in points, and the gap:
        (bound − objective) / max(1, abs(objective)).

    Raises
    ------
    BadInputError
        An argument cannot be.
    PlannerError
        No answer passed the verifier, not even greedy's: a defect of gpuplan.
    """
    from datetime import UTC, datetime

    from gpuplan.planner.apply.promises import carry_over_promises
    from gpuplan.planner.call_arguments import policy_with
    from gpuplan.planner.epoch import plan_epoch

    policy = policy_with(
        policy,
        time_limit=time_limit,
        solver=solver,
        stop_gap=stop_gap,
        deterministic=deterministic,
    )
    if after is not None:
        snapshot = carry_over_promises(snapshot, after)
    return plan_epoch(snapshot, policy, seed=seed, created_at=datetime.now(UTC), watch=watch, last=after)


def verify(plan: Plan, snapshot: Snapshot) -> Verdict:
    """
    Check each rule again, and recompute the objective, independently of how the plan was made.

    Where the snapshot is not what the plan was made from, what counts is the cluster there with those actions
    carried out that are still to be done.

    Parameters
    ----------
    plan
        Of `plan` or `load_plan`.
    snapshot
        What it was made from, or the cluster as it is now.

    Returns
    -------
    Verdict
        `verified`, or else every `Violation`: the rule, what broke it, what was found and what is allowed.
    """
    from gpuplan.planner.apply.verdict import verdict_on

    return verdict_on(plan, snapshot)


def explain(plan: Plan, name: str) -> Explanation | QueueExplanation | NodeExplanation:
    """
    Explain a job, a queue or a node of a plan, and what would help.

    For a job that waits this finds the smallest changes that would make it start, which takes its time.

    Parameters
    ----------
    plan
        Of `plan` or `load_plan`.
    name
        Of a job, a queue or a node; `job/NAME`, `queue/NAME` and `node/NAME` tell apart what has the same
        name.

    Raises
    ------
    BadInputError
        Nothing in the plan has the name, or things of several kinds have it.
    """
    from gpuplan.planner.explain.answer import answer, resolve_name

    source = f"plan {plan.plan_id[:8]}"
    kind, meant = resolve_name(plan, name, source=source)
    return answer(plan, kind, meant, source=source)


def whatif(
    snapshot: Snapshot,
    scenarios: Scenario | Mapping[str, Any] | str | PathLike[str] | Sequence[Any],
    policy: Policy | None = None,
    *,
    time_limit: int | str | None = None,
    solver: Literal["auto", "milp", "cpsat", "greedy"] = "auto",
    stop_gap: float | None = None,
    deterministic: bool = False,
    seed: int = 0,
    processes: int | None = None,
) -> Comparison:
    """
    Compare the plan of a snapshot with that of each scenario.

    Each plan is made in a process of its own, by the planner that makes all plans. A scenario that cannot be
    planned does not lose the others: its `Trial.failure` says why.

    Parameters
    ----------
    snapshot
        The base; places that it has lost are given up first.
    scenarios
        One or several: a `Scenario`, its document as a mapping with the fields of docs/reference/scenario.md,
        or the file that holds it.
    policy
        Of the base; the default policy if left out.
    time_limit, solver, stop_gap, deterministic, seed
        Of each plan, as `plan` has them.
    processes
        Plans made at a time; one a processor if left out.

    Returns
    -------
    Comparison
        The base and the scenarios in the order given: `Trial.figures`, their `differences` from the base, the
        jobs that fare otherwise, and expectations that are not met.

    Raises
    ------
    BadInputError
        An argument cannot be, or scenarios do not fit the snapshot: with every problem of all of them.
    """
    from collections.abc import Mapping
    from os import PathLike

    from gpuplan.models.validation.damage import survey_damage
    from gpuplan.planner.call_arguments import at_least_one, policy_with
    from gpuplan.planner.whatif.compare import compare
    from gpuplan.planner.whatif.patch.scenario import Scenario, load_scenarios
    from gpuplan.planner.whatif.runner import Processes, processors

    engine = Processes(at_least_one("processes", processes) or processors())
    policy = policy_with(
        policy,
        time_limit=time_limit,
        solver=solver,
        stop_gap=stop_gap,
        deterministic=deterministic,
    )
    sound = survey_damage(snapshot.canonical()).sound
    given = [scenarios] if isinstance(scenarios, Scenario | Mapping | str | PathLike) else list(scenarios)
    return compare(sound, policy, load_scenarios(given, sound, policy), engine, seed=seed)


def simulate(
    snapshot: Snapshot,
    policy: Policy | Mapping[str, Policy] | None = None,
    *,
    arrivals: str | PathLike[str] | None = None,
    solver: str | Sequence[str] = "auto",
    every: int | str = "5m",
    min_interval: int | str | None = None,
    max_interval: int | str | None = None,
    duration: int | str | None = None,
    epochs: int | None = None,
    skip: int | str = 0,
    submit_for: int | str | None = None,
    load: float = 1.0,
    estimates: float | None = 1.0,
    outages: str | PathLike[str] | None = None,
    checkpoint_every: int | str = "30m",
    time_limit: int | str | None = None,
    deterministic: bool = False,
    seed: int = 0,
    processes: int | None = None,
) -> Simulation:
    """
    Replay jobs over time, epoch by epoch, under each policy with each solver.

    Each run is made in a process of its own, on a cluster held in memory: nothing real is touched. Durations
    are whole seconds, or texts such as `"30m"`.

    Parameters
    ----------
    snapshot
        The cluster and the jobs at the start, which take as long as they say; lost places are given up first.
    policy
        One, or several by name; the default policy if left out.
    arrivals
        File of the jobs that come: an openb pod list or a Philly job list (CSV), or a workload profile
        (YAML).
    solver
        One or several: `auto` (as the policy says), `milp`, `cpsat`, `greedy`, a baseline of
        docs/simulation.md such as `easy` or `srpt`, or `all-baselines`.
    every
        From one epoch to the next, or `"event"`: an epoch where jobs come or end, or nodes change.
    min_interval
        With `every="event"`: epochs are so far apart at least.
    max_interval
        With `every="event"`: and no farther than this; an hour if left out.
    duration
        End after so long. Without it and `epochs`: when all jobs are over, or a day after nothing more
        happens.
    epochs
        End after so many epochs.
    skip
        Leave out so much of the beginning of the arrivals.
    submit_for
        Jobs come for so long only.
    load
        Jobs come so many times as fast, from 0.001 to 1000.
    estimates
        What planning is told of durations: wrong by up to this factor, 1 being the truth; None tells nothing.
    outages
        File of the nodes that fail and return (CSV).
    checkpoint_every
        Running jobs save their state so often; 0 is never.
    time_limit, deterministic
        Of each epoch, as `plan` has them.
    seed
        Of solvers, drawn jobs and wrong estimates.
    processes
        Runs made at a time; one a processor if left out.

    Returns
    -------
    Simulation
        A `SimulatedRun` for each policy and solver, with its `Scorecard`; as pandas tables with
        `score_frame()` and `epoch_frame()`.

    Raises
    ------
    BadInputError
        An argument cannot be, or a file has problems: with every one of them.
    PlannerError
        A run failed; says which and why.
    """
    from collections.abc import Mapping
    from pathlib import Path

    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.validation.damage import survey_damage
    from gpuplan.planner import call_arguments as given
    from gpuplan.planner.simulate.compare_runs import build_simulation, cases_of, run_all_cases, trace_of
    from gpuplan.planner.simulate.trace import Estimates, TraceWindow
    from gpuplan.planner.whatif.runner import processors

    at_a_time = given.at_least_one("processes", processes) or processors()
    clock = given.clock(every, min_interval, max_interval, duration, epochs)
    policies = policy if isinstance(policy, Mapping) else {"policy": policy or Policy()}
    if not policies:
        raise given.refused("policy", "expected at least one policy, found none.")
    cases = cases_of(
        list(policies.items()),
        given.solvers_and_baselines(solver),
        time_limit=given.milliseconds("time_limit", time_limit),
        deterministic=deterministic,
    )
    trace = trace_of(
        survey_damage(snapshot.canonical()).sound,
        cases[0].policy,
        arrivals=None if arrivals is None else Path(arrivals),
        outages=None if outages is None else Path(outages),
        window=TraceWindow(
            skip=given.duration("skip", skip),
            seconds=given.optional_duration("submit_for", submit_for),
            load_milli=given.load_milli(load),
        ),
        estimates=Estimates(given.wrong_by(estimates), seed),
        checkpoint_every=given.duration("checkpoint_every", checkpoint_every),
        seed=seed,
    )
    runs = run_all_cases(trace, cases, clock, seed=seed, at_a_time=at_a_time)
    return build_simulation(
        trace,
        cases,
        runs,
        clock,
        source=f"snapshot {snapshot.fingerprint()[:8]}",
        arrivals=None if arrivals is None else str(arrivals),
        seed=seed,
    )
