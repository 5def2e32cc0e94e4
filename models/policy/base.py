"""PartOfPolicy: a subset of the settings of a policy."""

from __future__ import annotations

from pydantic import Field, model_validator

from gpuplan.models.policy.horizon import Backfill, HorizonPolicy
from gpuplan.models.policy.policy import Policy


class PartOfBackfill(Backfill):
    """Some settings of backfill; their consistency is checked in the complete policy."""

    @model_validator(mode="after")
    def _delay_where_allowed(self) -> PartOfBackfill:
        return self


class PartOfHorizon(HorizonPolicy):
    """Some settings of the horizon."""

    backfill: PartOfBackfill = Field(default_factory=PartOfBackfill)
    """Some settings of promised starts."""


class PartOfPolicy(Policy):
    """Some settings of a policy, each valid by itself."""

    horizon: PartOfHorizon = Field(default_factory=PartOfHorizon)
    """Some settings of the horizon."""
