"""PlanPart: base class of everything that occurs only in plan files."""

from __future__ import annotations

from pydantic import ConfigDict

from gpuplan.models.base import Noun


class PlanBase(Noun):
    """Part of a plan file; readers ignore keys that a newer minor version added."""

    model_config = ConfigDict(extra="ignore")
