"""The head of a plan: which plan it is, how good it is, and everything that went another way than meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.models.units import print_timestamp
from planner.rendering.style import Tone
from planner.wording import counted

if TYPE_CHECKING:
    from planner.models.plan import Metrics, Plan, SolutionSummary
    from planner.rendering.style import Style


def short(fingerprint: str) -> str:
    """Enough of a fingerprint to recognise it by."""
    return fingerprint[:8]


def percent(ratio: float) -> str:
    """`0.9 %`."""
    return f"{100 * ratio:.1f} %"


def header_lines(plan: Plan, style: Style, *, verbose: bool) -> list[str]:
    """Identity, solution, its terms, and whatever deserves care."""
    solution = plan.solution
    identity = [
        f"Plan {short(plan.plan_id)}",
        f"epoch {print_timestamp(plan.epoch)}",
        f"snapshot {short(plan.base.snapshot)}",
        f"policy {short(plan.base.policy)}",
    ]
    terms = [f"{name} {value:,}" for name, value in sorted(solution.terms.items())]
    lines = [
        *(style.paint(line, Tone.STRONG) for line in style.flow(identity)),
        *style.flow(_quality(solution)),
        *style.flow(["terms", *terms, f"(greedy {solution.greedy_objective:,})"]),
    ]
    if verbose and solution.phases:
        lines += style.flow(
            ["seconds", *(f"{phase} {seconds:.2f}" for phase, seconds in sorted(solution.phases.items()))]
        )
    lines += [style.paint(line, Tone.CARE) for text in cares(solution) for line in style.wrap(text, 0)]
    return [line for line in lines if line]


def metrics_lines(metrics: Metrics, style: Style) -> list[str]:
    """The cluster after the plan in figures."""
    before, after = percent(metrics.gpu_allocation_ratio_before), percent(metrics.gpu_allocation_ratio)
    figures = [
        f"allocated {before} → {after}" if before != after else f"allocated {after}",
    ]
    if metrics.gpu_allocation_ratio < 1:
        figures.append(f"free GPUs in whole nodes {percent(1 - metrics.fragmentation_ratio)}")
    figures.append(f"fairness {metrics.jain_index:.2f}")
    if metrics.hourly_cost:
        figures.append(f"cost {metrics.hourly_cost:,.0f}/h")
    return style.flow(figures)


def gap_text(solution: SolutionSummary) -> str:
    """`gap 0.9 %`, or that nobody knows it."""
    return "bound unknown" if solution.gap is None else f"gap {percent(solution.gap)}"


def _quality(solution: SolutionSummary) -> list[str]:
    parts = [f"{solution.solver} {solution.status}", f"objective {solution.objective:,}"]
    if solution.bound is None or solution.gap is None:
        parts.append("bound unknown")
    else:
        parts += [f"bound {solution.bound:,}", gap_text(solution)]
    return [*parts, f"in {solution.seconds:.1f} s"]


def cares(solution: SolutionSummary) -> list[str]:
    """What the reviewer should know about how the answer came about, if it was not the usual way."""
    found = []
    if (fallback := solution.fallback) is not None:
        found.append(f"Fell back from {fallback.tried} to {fallback.used}: {fallback.reason}")
    found += [f"Rejected an answer that breaks a rule: {rejected}" for rejected in solution.rejected]
    if solution.not_disaggregated:
        jobs = counted(solution.not_disaggregated, "job")
        found.append(f"{jobs} of the solver's answer found no concrete place and wait")
    return found
