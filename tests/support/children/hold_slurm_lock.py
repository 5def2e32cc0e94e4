"""Takes the lock of a Slurm cluster again and again, as a process of this or of another machine."""

from __future__ import annotations

import fcntl
import random
import sys
import time
from contextlib import suppress
from pathlib import Path

from gpuplan.planner.executors.slurm import cluster_lock
from gpuplan.planner.executors.slurm.cluster_lock import ClusterLock
from gpuplan.planner.io.file_lock import LockedError


def main(machine, witness, longest):
    """Each time the lock is held, nothing else holds the file `witness`; writes a line, then."""
    if machine:
        cluster_lock._where = lambda: machine
    while True:
        with suppress(LockedError), ClusterLock("the cluster").held(), Path(witness).open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("held by two", flush=True)
            print("held", flush=True)
            time.sleep(random.uniform(0, float(longest)))
        time.sleep(random.uniform(0, 0.1))


if __name__ == "__main__":
    main(*sys.argv[1:])
