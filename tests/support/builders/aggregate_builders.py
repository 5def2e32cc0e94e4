"""Questions with look-ups by name, and aggregate answers to them."""

from __future__ import annotations

import random
from collections import Counter

from gpuplan.models.formulation.decode import Aggregate, Batch
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.rounding.disaggregate import disaggregate
from tests.support.builders import build
from tests.support.harness.greedy_plans import realized


class Question:
    """A problem with look-ups by name."""

    def __init__(self, snapshot, policy=None):
        self.snapshot, self.policy = snapshot, policy or build.by_value()
        self.problem = build_problem(snapshot, self.policy)

    def job_class(self, name, role=ClassRole.START):
        classes = enumerate(self.problem.classes)
        return next(index for index, each in classes if name in each.jobs and each.role is role)

    def node(self, name):
        return next(index for index, node in enumerate(self.problem.nodes) if node.name == name)

    def incumbent(self, name):
        return next(index for index, each in enumerate(self.problem.incumbents) if each.job == name)

    def batch(self, *jobs, role=ClassRole.START, **places):
        """Jobs given as (name of one of the class, number), and (nodes, replicas) as `n0_n1=3`."""
        return Batch(
            jobs=tuple((self.job_class(name, role), count) for name, count in jobs),
            options=(0,),
            places=tuple(
                (tuple(self.node(name.replace("X", "-")) for name in nodes.split("_")), replicas)
                for nodes, replicas in places.items()
            ),
        )

    def answer(self, aggregate, missed=0):
        ledger, found = disaggregate(self.problem, aggregate)
        assert found == missed
        return realized(self.snapshot, self.policy, ledger)


class Planted:
    """
    A cluster with running jobs, some of which are stopped, and jobs that fit exactly where these were.

    Sizes divide each other, so that whatever fits node by node is found again from the counts alone.
    """

    def __init__(self, seed):
        draw, nodes = random.Random(seed), random.Random(seed).randint(2, 16)
        self.jobs, self.stopped, self.counts = [], [], Counter()
        self.left, self.kept = set(), set()
        replicas = Counter()
        for number in range(nodes):
            name, free = f"n{number}", 0
            for start, size in self.parts(draw, 8):
                if draw.random() < 0.6:
                    self.run(draw, name, range(start, start + size))
                free += size * (not self.kept & {(name, start)})
            rank = name in self.left
            for size in self.count_replicas(draw, free):
                replicas[size, rank] += 1
        self.batches = list(self.wait(draw, replicas))
        self.snapshot = build.snapshot(nodes=build.cluster(nodes), jobs=self.jobs)

    def parts(self, draw, size, start=0):
        """A block of GPUs, cut into halves until it is small enough."""
        if size == 1 or draw.random() < 0.4:
            yield start, size
        else:
            yield from self.parts(draw, size // 2, start)
            yield from self.parts(draw, size // 2, start + size // 2)

    def run(self, draw, node, gpus):
        name = f"r{len(self.jobs)}"
        self.jobs.append(build.job(name, gpus=len(gpus), at=[build.replica(node, gpus=gpus)]))
        if draw.random() < 0.7:
            self.stopped.append(name)
            self.left.add(node)
        else:
            self.kept.add((node, gpus[0]))

    def count_replicas(self, draw, free):
        while free:
            size = draw.choice([size for size in (1, 2, 4, 8) if size <= free])
            yield size
            free -= size

    def wait(self, draw, replicas):
        """Gangs of the replicas of each size, on nodes that a job left and others as they come."""
        for size in (1, 2, 4, 8):
            ranks = [rank for rank in (False, True) for _ in range(replicas[size, rank])]
            draw.shuffle(ranks)
            while ranks:
                wide = draw.randint(1, len(ranks))
                name = f"w{len(self.jobs)}"
                self.jobs.append(build.job(name, gpus=size, replicas=wide, priority=50))
                yield name, Counter(ranks[:wide])
                del ranks[:wide]

    def answer(self):
        question = Question(self.snapshot)
        nodes = {
            rank: tuple(
                index for index, node in enumerate(question.problem.nodes) if (node.name in self.left) == rank
            )
            for rank in (False, True)
        }
        batches = tuple(
            Batch(
                ((question.job_class(name), 1),),
                (0,),
                tuple((nodes[rank], count) for rank, count in sorted(ranks.items())),
            )
            for name, ranks in self.batches
        )
        stopped = tuple(sorted(question.incumbent(name) for name in self.stopped))
        return question, Aggregate(stopped=stopped, batches=batches)
