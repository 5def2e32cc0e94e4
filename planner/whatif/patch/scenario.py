"""Scenario: a named what-if: changes to a snapshot and its policy, and expectations of the plan."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.units import Name
from gpuplan.planner.whatif.patch.scenario_changes import Change
from gpuplan.planner.whatif.patch.scenario_expectations import Expectation


class Scenario(Noun):
    """A named list of changes and expectations; without changes the world is the base itself."""

    format_version: Literal["1.0"] = "1.0"
    """Version of the format of this document."""
    name: Name
    """Name of the scenario."""
    description: Annotated[str, Field(max_length=200)] = ""
    """One sentence for people."""
    changes: tuple[Change, ...] = ()
    """Changes to snapshot and policy, applied in this order; an empty list is the base itself."""
    expectations: tuple[Expectation, ...] = ()
    """What must hold of the scenario's plan."""
