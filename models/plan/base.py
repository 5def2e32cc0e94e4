"""PlanPart: the base of everything that only plan files hold."""

from __future__ import annotations

from pydantic import ConfigDict

from gpuplan.models.base import Noun


class PlanPart(Noun):
    """Part of a plan file: readers ignore keys that a newer minor version added."""

    model_config = ConfigDict(extra="ignore")
