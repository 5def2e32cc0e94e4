"""PartOfPolicy: some knobs of a policy, stated by themselves."""

from __future__ import annotations

from pydantic import Field, model_validator

from gpuplan.models.policy.horizon import Backfill, HorizonPolicy
from gpuplan.models.policy.policy import Policy


class PartOfBackfill(Backfill):
    """Some of its knobs: how they go together is judged in the policy that they are set in."""

    @model_validator(mode="after")
    def _delay_where_allowed(self) -> PartOfBackfill:
        return self


class PartOfHorizon(HorizonPolicy):
    """Some of its knobs."""

    backfill: PartOfBackfill = Field(default_factory=PartOfBackfill)
    """Some knobs of the promised starts."""


class PartOfPolicy(Policy):
    """Some of its knobs, each right in itself."""

    horizon: PartOfHorizon = Field(default_factory=PartOfHorizon)
    """Some knobs of the horizon."""
