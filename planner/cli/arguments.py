"""Argument types for names: files, plans of a run, and jobs, queues and nodes of a source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.snapshot import Snapshot

ANY_PATH: Final = click.Path(readable=False, allow_dash=True)
"""A file, a directory or `-`; the reader of the file reports if it cannot be read."""

PLANS: Final = Path(".gpuplan") / "plans"
"""Default folder of the plans of `gpuplan run`."""

_SHORTEST_ID: Final = 4
"""Shortest prefix of a plan's id that is accepted."""

_LARGEST_COMPLETED: Final = 5_000_000
"""Largest source in bytes that completion reads: it takes about a quarter of a second at the prompt."""


class PlanFile(click.ParamType[str]):
    """A plan file, or the id of a plan in the folder of a run, or a prefix of it; converted to a path."""

    name = "plan"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path as given if there is such a file, else the path of the plan with this id."""
        text = str(value)
        if len(text) < _SHORTEST_ID or not set(text) <= set("0123456789abcdef") or Path(text).exists():
            return text
        # Files are named NUMBER-ID.json, with the first 8 characters of the id.
        found = sorted(PLANS.glob(f"*-{text[:8]}*.json"), reverse=True)
        if len({path.name.partition("-")[2] for path in found}) > 1:
            names = ", ".join(path.stem.partition("-")[2] for path in found)
            self.fail(f"{text!r} is the beginning of several plans in {PLANS}: {names}.", param, ctx)
        if not found:
            self.fail(
                f"no file has the name {text!r}, and no plan in {PLANS} this id; "
                "`gpuplan history` prints the ids of plans.",
                param,
                ctx,
            )
        return str(found[0])

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete ids of the plans of the last run; file names if none matches."""
        del ctx, param
        ids = {path.stem.partition("-")[2] for path in PLANS.glob("*-*.json")} if incomplete else set()
        found = [CompletionItem(name) for name in sorted(ids) if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]


class EntityName(click.ParamType[str]):
    """The name of a job, queue or node of the source on the same command line."""

    name = "text"

    def __init__(self, *sections: str, prefixed: bool = False) -> None:
        self._sections = sections
        self._prefixed = prefixed

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Complete names; no completion if the source cannot be read or is large."""
        del param
        source = ctx.params.get("source") or ctx.params.get("state")
        snapshot = _quietly_read(str(source)) if source else None
        if snapshot is None:
            return []
        return [CompletionItem(name) for name in self._names(snapshot) if name.startswith(incomplete)]

    def _names(self, snapshot: Snapshot) -> Iterator[str]:
        names = {
            "job": [job.name for job in snapshot.jobs],
            "queue": [queue.name for queue in snapshot.queues],
            "node": [node.name for node in snapshot.cluster.nodes],
        }
        for section in self._sections:
            yield from names[section]
            if self._prefixed:
                yield from (f"{section}/{name}" for name in names[section])


def _quietly_read(source: str) -> Snapshot | None:
    """Return the snapshot of a source, a saved plan or a simulated cluster; None if it cannot be read."""
    from gpuplan.models.errors import PlannerError
    from gpuplan.planner.plan_file.plan_file import load_plan
    from gpuplan.planner.sources.files import load_snapshot

    path = Path(source)
    try:
        if path.is_file() and path.stat().st_size > _LARGEST_COMPLETED:
            return None
        if path.suffix == ".db":
            from gpuplan.planner.executors.simulated import SimulatedCluster

            with SimulatedCluster(path) as cluster:
                return cluster.snapshot()
        try:
            return load_snapshot(source)
        except PlannerError:
            return load_plan(source).snapshot
    except (PlannerError, OSError):
        return None
