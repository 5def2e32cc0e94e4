"""PartOfPolicy: a subset of the settings of a policy."""

from __future__ import annotations

from pydantic import Field, model_validator

from gpuplan.models.policy.policy import Policy
from gpuplan.models.policy.settings import Backfill, HorizonPolicy


class BackfillBase(Backfill):
    """Some settings of backfill; their consistency is checked in the complete policy."""

    @model_validator(mode="after")
    def _delay_where_allowed(self) -> BackfillBase:
        return self


class HorizonBase(HorizonPolicy):
    """Some settings of the horizon."""

    backfill: BackfillBase = Field(default_factory=BackfillBase)
    """Some settings of promised starts."""


class PolicyBase(Policy):
    """Some settings of a policy, each valid by itself."""

    horizon: HorizonBase = Field(default_factory=HorizonBase)
    """Some settings of the horizon."""
