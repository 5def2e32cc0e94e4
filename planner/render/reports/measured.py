"""What was measured of GPUs, as a part of the page of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.validation.right_size import oversized_jobs
from gpuplan.planner.analysis.measured_use import measured_use
from gpuplan.planner.render.plan.measured import (
    busy_text,
    gpu_findings,
    health_table,
    memory_text,
    queue_use_table,
    scope_text,
)
from gpuplan.planner.render.reports.page import HeadlineFigure, Text
from gpuplan.planner.render.table import Table, TableRow

if TYPE_CHECKING:
    from gpuplan.models.plan.plan import Plan
    from gpuplan.planner.render.reports.page import Block


def measured_blocks(plan: Plan) -> list[Block]:
    """Use by queue, what the rules of health find, and jobs that could do with less; nothing unmeasured."""
    if measured_use(plan.snapshot) is None:
        return []
    findings = gpu_findings(plan)
    told = health_table(findings) if findings else Text("The rules of health find nothing.", "quiet")
    small = [TableRow((text[0].upper() + text[1:],)) for text in oversized_jobs(plan.snapshot)]
    sized = [Table(small, ("Jobs that could do with less",))] if small else []
    queues = queue_use_table(plan)
    return [told, *([queues] if queues.rows else []), *sized]


def measured_figure(plan: Plan) -> list[HeadlineFigure]:
    """The use of all measured GPUs; nothing unmeasured."""
    use = measured_use(plan.snapshot)
    if use is None:
        return []
    memory = f"{memory_text(use)} of memory in use, " if use.memory is not None else ""
    return [HeadlineFigure("Busy, as measured", busy_text(use), f"{memory}{scope_text(use)}")]
