"""Metrics that a run exports, and those that a PromQL expression names."""

from __future__ import annotations

import re

from prometheus_client.parser import text_string_to_metric_families

from gpuplan.models.plan.actions import changes_of
from gpuplan.models.plan.plan import FallbackSummary
from gpuplan.planner.apply.outcome import ApplyOutcome
from gpuplan.planner.service.history import EpochOutcome, EpochRecord
from gpuplan.planner.service.prometheus import MetricsRegistry, epoch_gauges
from tests.support.builders.build import NOW
from tests.support.samples.sample_plans import busy_plan

PLAN = busy_plan()


def exported(text):
    """Label names by name of each series in an exposition."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def named(expression):
    """(series, names of the labels in its braces) for each series of an expression."""
    return [
        (name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", braces or "")))
        for name, braces in re.findall(r"\b(gpuplan_\w+)\s*(?:\{([^}]*)\})?", expression)
    ]


def grouped(expression):
    """Labels by which an expression groups."""
    return {
        label.strip()
        for labels in re.findall(r"\b(?:by|without)\s*\(([^)]*)\)", expression)
        for label in labels.split(",")
    }


def record(**about):
    return EpochRecord(number=1, began_at=NOW, ended_at=NOW, outcome=EpochOutcome.APPLIED, **about)


def full_exposition():
    """An exposition in which everything has happened once."""
    exposition = MetricsRegistry("1.2.3", every=60)
    fallback = FallbackSummary.model_validate({"from": "milp", "to": "cpsat", "reason": "it hung"})
    solution = PLAN.solution.model_copy(update={"fallback": fallback})
    plan = PLAN.model_copy(update={"solution": solution})
    exposition.planned(plan, 2.5)
    exposition.applied(plan, ApplyOutcome(tuple(change.id for change in changes_of(plan.actions))))
    exposition.show(plan, epoch_gauges(plan, applied=True))
    exposition.epoch(record(), failures=0)
    return exposition
