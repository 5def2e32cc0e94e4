"""Eligible nodes of jobs, computed once per kind of job and kind of node instead of once per pair."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gpuplan.models.eligibility.node_eligibility import eligibility_key, ineligibility

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from gpuplan.models.cluster import Node, NodeGpus
    from gpuplan.models.job import Job

    Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class EligibleNodes:
    """The eligible nodes of a job, and why the other nodes are not eligible."""

    nodes: tuple[int, ...]
    """Indices of the nodes, ascending."""
    gpu_models: tuple[str, ...]
    """GPU models of these nodes, sorted."""
    refusals: Counter[str]
    """Number of refused nodes by reason."""
    by_model: dict[str | None, list[int]]
    """Indices of the nodes by GPU model."""

    @cached_property
    def indices(self) -> Ints:
        """`nodes` as an array."""
        return np.array(self.nodes, dtype=np.int64)

    def of_models(self, gpu_models: Iterable[str]) -> Ints:
        """The part of `indices` that has one of the given GPU models."""
        found = [index for model in gpu_models for index in self.by_model[model]]
        return np.sort(np.array(found, dtype=np.int64))


class EligibilityIndex:
    """Matches jobs with nodes; `new` are indices of nodes that the plan adds or could add."""

    def __init__(self, nodes: Sequence[Node], jobs: Iterable[Job], new: Collection[int] = ()) -> None:
        self._nodes = nodes
        self._new = frozenset(new)
        self._labels = sorted(
            {label for job in jobs for label in (*job.node_selector, *(match.key for match in job.affinity))}
        )
        self._match_by_filters: dict[Any, EligibleNodes] = {}

    def match(self, job: Job) -> EligibleNodes:
        """Return the nodes for a job; jobs with equal filters share one answer."""
        key = eligibility_key(job)
        found = self._match_by_filters.get(key)
        if found is None:
            found = self._match_by_filters[key] = self._ask(job)
        return found

    def _ask(self, job: Job) -> EligibleNodes:
        accepted: dict[str | None, list[int]] = defaultdict(list)
        refusals: Counter[str] = Counter()
        for members in self._kinds:
            first = self._nodes[members[0]]
            reason = ineligibility(job, first)
            if reason is None and members[0] in self._new and not job.request.needs_gpu:
                reason = self._too_good(first)
            if reason is None:
                accepted[first.gpu_model] += members
            else:
                refusals[reason] += len(members)
        nodes = tuple(sorted(chain.from_iterable(accepted.values())))
        return EligibleNodes(nodes, tuple(sorted(filter(None, accepted))), refusals, accepted)

    def _too_good(self, node: Node) -> str | None:
        return "new GPU nodes are not for jobs without GPUs" if node.gpus else None

    @cached_property
    def _kinds(self) -> list[list[int]]:
        """Indices of nodes, grouped so that `ineligibility` gives one answer per group for each job."""
        kinds: dict[Any, list[int]] = defaultdict(list)
        for index, node in enumerate(self._nodes):
            labels = node.labels
            kind = (
                (node.ready, node.cordoned, node.drain, index in self._new),
                node.region,
                _gpus(node.gpus) if node.gpus else None,
                tuple([labels.get(label) for label in self._labels]),
                node.taints,
            )
            kinds[kind].append(index)
        return list(kinds.values())


def _gpus(gpus: NodeGpus) -> tuple[object, ...]:
    """
    The properties of GPUs that `ineligibility` reads.

    For a GPU model without a known MIG geometry, the present MIG profiles are what it offers.
    """
    profiles = {instance.profile for gpu in gpus.details for instance in gpu.mig or ()}
    return gpus.model, gpus.memory_mib, gpus.time_sliced, gpus.may_be_unhealthy, frozenset(profiles)
