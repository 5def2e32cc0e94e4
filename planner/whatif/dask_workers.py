"""Runs tasks on the workers of a Dask cluster, for work that exceeds one machine."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from distributed import Client, as_completed

from gpuplan.models.errors import PlannerError
from gpuplan.solvers.worker import ChildOutcome, run_in_child

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuplan.planner.whatif.runner import WorkerTask

_PATIENCE: Final = 10
"""Timeout in seconds for the scheduler to answer, and for its first worker."""


class DaskWorkers:
    """The workers of a scheduler; each runs a task in a separate process."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def run(self, tasks: Sequence[WorkerTask]) -> Iterator[tuple[int, ChildOutcome]]:
        """Yield the index and outcome of each task as it ends."""
        index_of = {
            self._client.submit(run_task, self._client.scatter(task, hash=False), pure=False): index
            for index, task in enumerate(tasks)
        }
        try:
            for ended in as_completed(list(index_of), loop=self._client.loop):
                error = ended.exception()
                yield (
                    index_of[ended],
                    ended.result() if error is None else ChildOutcome(failure=_words(error)),
                )
        finally:
            self._client.cancel(list(index_of))


def run_task(task: WorkerTask) -> ChildOutcome:
    """Run a task on a worker's machine."""
    return run_in_child(task.entry, task.arguments, task.seconds, lambda _: None)


def _words(error: BaseException) -> str:
    return f"failed on its Dask worker: {type(error).__name__}: {error}"


@contextmanager
def dask_cluster(scheduler: str) -> Iterator[DaskWorkers]:
    """
    Connect to the scheduler of an existing cluster; the cluster keeps running afterwards.

    Raises
    ------
    PlannerError
        No scheduler answers at the address, or the scheduler has no workers.
    """
    try:
        client = Client(scheduler, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise PlannerError(
            f"no Dask scheduler answers at {scheduler}: {error}.\n"
            "Give the address that `dask scheduler` prints, such as tcp://10.0.0.1:8786."
        ) from None
    try:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError:
            raise PlannerError(
                f"the Dask scheduler at {scheduler} has no workers.\n"
                f"Start some with `dask worker {scheduler}`, each with gpuplan installed."
            ) from None
        yield DaskWorkers(client)
    finally:
        client.close()
