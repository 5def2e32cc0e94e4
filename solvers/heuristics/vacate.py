"""Take running jobs off their places (preempt, shrink, migrate), and restore them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.solvers.heuristics import placement
from gpuplan.solvers.heuristics.list_scheduling import cancel_starts
from gpuplan.solvers.state.assignment import ReplicaSite
from gpuplan.solvers.state.disruption_state import DisruptionKind, JobDisruption

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.solvers.state.assignment import JobAssignment
    from gpuplan.solvers.state.ledger import Ledger


def stop_incumbent(ledger: Ledger, index: int) -> bool:
    """Preempt a running job; False if that is not allowed, or no longer: a new job there has less rank."""
    if not may_stop_incumbent(ledger, index):
        return False
    disruption, everything = ledger.disruptions[index], _all_positions(ledger, index)
    preempted = _preempted(ledger, index)
    # A job that left to migrate has not been preempted from any node yet.
    moving = disruption is not None and disruption.kind is DisruptionKind.MOVE
    _vacate_positions(ledger, index, frozenset() if moving else preempted)
    if moving:
        ledger.sites.count_moved(index, _all_positions(ledger, index), -1)
    ledger.sites.count_preempted(index, preempted, 1)
    ledger.sites.set_disruption(index, JobDisruption(DisruptionKind.STOP, everything))
    return True


def may_stop_incumbent(ledger: Ledger, index: int) -> bool:
    """True if a running job may be preempted, given the new jobs where it runs."""
    incumbent, disruption = ledger.problem.incumbents[index], ledger.disruptions[index]
    if incumbent.stop_points is None or _is_grown(ledger, index):
        return False
    if disruption is not None and disruption.kind is DisruptionKind.STOP:
        return False
    if (
        disruption is not None
        and disruption.kind is DisruptionKind.MOVE
        and _is_placed(ledger, incumbent.move)
    ):
        return False
    return ledger.sites.may_preempt(index, _preempted(ledger, index)) and ledger.disruptions.within_budgets(
        index, len(incumbent.holds)
    )


def _all_positions(ledger: Ledger, index: int) -> frozenset[int]:
    return frozenset(range(len(ledger.problem.incumbents[index].holds)))


def _preempted(ledger: Ledger, index: int) -> frozenset[int]:
    """Positions that are newly preempted if the whole running job is preempted."""
    disruption, everything = ledger.disruptions[index], _all_positions(ledger, index)
    return (
        everything
        if disruption is None or disruption.kind is DisruptionKind.MOVE
        else everything - disruption.given_up
    )


def vacate_for_move(ledger: Ledger, index: int) -> bool:
    """Take a running job off its places so that it can migrate; False if it may not migrate."""
    incumbent = ledger.problem.incumbents[index]
    if incumbent.move is None or ledger.disruptions[index] is not None or _is_grown(ledger, index):
        return False
    everything = _all_positions(ledger, index)
    if not ledger.disruptions.within_budgets(index, len(everything)):
        return False
    _vacate_positions(ledger, index, everything)
    ledger.sites.count_moved(index, everything, 1)
    ledger.sites.set_disruption(index, JobDisruption(DisruptionKind.MOVE, everything))
    return True


def shrink_incumbent(ledger: Ledger, index: int, positions: Iterable[int]) -> bool:
    """Give up replicas of a running job; False if it may not lose them."""
    incumbent, disruption = ledger.problem.incumbents[index], ledger.disruptions[index]
    before = frozenset() if disruption is None else disruption.given_up
    more = frozenset(positions) - before
    if disruption is not None and disruption.kind is not DisruptionKind.SHRINK:
        return False
    if not more or len(incumbent.holds) - len(before | more) < incumbent.min_replicas:
        return False
    if _is_grown(ledger, index) or not ledger.sites.may_preempt(index, more):
        return False
    if not ledger.disruptions.within_budgets(index, len(before | more)):
        return False
    _vacate_positions(ledger, index, more)
    ledger.sites.count_preempted(index, more, 1)
    ledger.sites.set_disruption(index, JobDisruption(DisruptionKind.SHRINK, before | more))
    return True


def restore_incumbent(ledger: Ledger, index: int, positions: Iterable[int] | None = None) -> bool:
    """
    Restore a running job on its places, or on some of them; False if they are taken.

    A preempted job that gets back at least its fewest replicas becomes a shrunk one.
    """
    mark = ledger.undo.mark()
    cancel_resumption(ledger, index)
    if _restore(ledger, index, positions):
        return True
    ledger.undo.rollback(mark)
    return False


def cancel_resumption(ledger: Ledger, index: int) -> None:
    """Cancel the later restart of a preempted job, if it has one."""
    resume = ledger.problem.incumbents[index].resume
    if resume is not None and ledger.is_placed(resume):
        cancel_starts(ledger, resume)


def _restore(ledger: Ledger, index: int, positions: Iterable[int] | None) -> bool:
    incumbent, disruption = ledger.problem.incumbents[index], ledger.disruptions[index]
    if disruption is None or (disruption.kind is DisruptionKind.MOVE and _is_placed(ledger, incumbent.move)):
        return False
    back = disruption.given_up if positions is None else disruption.given_up & frozenset(positions)
    still = disruption.given_up - back
    if still and (
        disruption.kind is DisruptionKind.MOVE or len(incumbent.holds) - len(still) < incumbent.min_replicas
    ):
        return False
    # Check each site by itself first: this decides most cases and is cheapest.
    if not back or not all(_is_free(ledger, index, position) for position in back):
        return False
    if ledger.queues.return_headroom(incumbent) < len(back):
        return False
    if disruption.kind is DisruptionKind.MOVE:
        ledger.sites.count_moved(index, _all_positions(ledger, index), -1)
    else:
        ledger.sites.count_preempted(index, back, -1)
    ledger.sites.set_disruption(index, JobDisruption(DisruptionKind.SHRINK, still) if still else None)
    if not ledger.affinity.may_return(index):
        return False
    for position in sorted(back):
        site = ReplicaSite.of(incumbent.holds[position])
        if site is not None:
            if not ledger.sites.may_restore(index, site):
                return False
            ledger.sites.restore(index, site)
    return True


def is_at_old_sites(ledger: Ledger, index: int, placed: JobAssignment) -> bool:
    """True if the new places of a migrating job are its old ones."""
    disruption, holds = ledger.disruptions[index], ledger.problem.incumbents[index].holds
    if disruption is None or disruption.kind is not DisruptionKind.MOVE:
        return False
    old = [site for hold in holds if (site := ReplicaSite.of(hold)) is not None]
    return Counter(map(_site_key, old)) == Counter(map(_site_key, placed.sites))


def _site_key(site: ReplicaSite) -> tuple[object, ...]:
    return site.node, frozenset(site.gpus), frozenset(site.slices)


def restore_by_eviction(ledger: Ledger, index: int, most: int | None = None) -> bool:
    """
    Restore a running job on its old places and remove new jobs there, those worth least first.

    New jobs on its own GPUs are removed before others, since without that nothing helps.

    Jobs that migrated there stay, since they would have to be restored too; jobs with a promised start stay
    as well. Returns False as soon as the removed jobs are worth more than `most` points, with what unmet
    guarantees gain and lose; the caller then rolls back.
    """
    incumbent, classes = ledger.problem.incumbents[index], ledger.problem.classes
    nodes = {hold.node for hold in incumbent.holds if hold.node is not None}
    for node in sorted(nodes & ledger.pools.closed.keys()):
        ledger.pools.cancel_close(node)
    there = {number: ledger.placed[number] for node in nodes for number in ledger.sites.numbers_on[node]}
    worths = {number: ledger.worth(placed) for number, placed in there.items()}
    in_the_way = _conflicting_jobs(ledger, index, there)
    disruption = ledger.disruptions[index]
    back = incumbent.shape.quota_milli * (len(disruption.given_up) if disruption else 0)
    held = [(incumbent.queue, incumbent.gpu_model, back)]
    gone = 0

    def costs_too_much(number: int) -> bool:
        """Count one more job as removed; True if they are worth too much then."""
        nonlocal gone
        job_class, placed = classes[there[number].job_class], there[number]
        gone += worths[number]
        taken = job_class.shape.quota_milli * len(placed.sites)
        held.append((job_class.queue, placed.option.gpu_model, -taken))
        return most is not None and gone - ledger.queues.quota.points_of(held) > most

    if any(_is_pinned(ledger, there[number]) or costs_too_much(number) for number in in_the_way):
        return False
    for number in sorted(in_the_way):
        ledger.remove(number)
    if restore_incumbent(ledger, index):
        return True
    for number in sorted(there.keys() - in_the_way, key=lambda number: (worths[number], number)):
        if _is_pinned(ledger, there[number]):
            continue
        if costs_too_much(number):
            return False
        ledger.remove(number)
        if restore_incumbent(ledger, index):
            return True
    return False


def _is_pinned(ledger: Ledger, placed: JobAssignment) -> bool:
    job_class = ledger.problem.classes[placed.job_class]
    return job_class.role is ClassRole.MOVE or job_class.firm


def _conflicting_jobs(ledger: Ledger, index: int, there: dict[int, JobAssignment]) -> set[int]:
    """New jobs on GPUs that a running job had, except where two shares may fit on one GPU."""
    incumbent, classes = ledger.problem.incumbents[index], ledger.problem.classes
    old = {(hold.node, gpu) for hold in incumbent.holds for gpu in hold.gpus}
    return {
        number
        for number, placed in there.items()
        if not (incumbent.shape.gpu_milli and classes[placed.job_class].shape.gpu_milli)
        and any((site.node, gpu) in old for site in placed.sites for gpu in site.gpus)
    }


def restorable_replicas(ledger: Ledger, index: int) -> list[int]:
    """Positions given up that are free, each checked by itself."""
    disruption = ledger.disruptions[index]
    positions = [] if disruption is None else sorted(disruption.given_up)
    return [position for position in positions if _is_free(ledger, index, position)]


def _is_free(ledger: Ledger, index: int, position: int) -> bool:
    site = ReplicaSite.of(ledger.problem.incumbents[index].holds[position])
    return site is None or ledger.sites.may_restore(index, site)


def _vacate_positions(ledger: Ledger, index: int, positions: frozenset[int]) -> None:
    incumbent = ledger.problem.incumbents[index]
    for position in sorted(positions):
        if (site := ReplicaSite.of(incumbent.holds[position])) is not None:
            ledger.sites.vacate(index, site)


def _is_placed(ledger: Ledger, job_class: int | None) -> bool:
    return job_class is not None and ledger.is_placed(job_class)


def _is_grown(ledger: Ledger, index: int) -> bool:
    return _is_placed(ledger, ledger.problem.incumbents[index].grow)


def vacate_drained_nodes(ledger: Ledger, *, moving: bool) -> None:
    """Migrate (if `moving`) or else preempt running jobs that earn points by leaving, most points first."""
    incumbents = ledger.problem.incumbents
    asked = [index for index, incumbent in enumerate(incumbents) if incumbent.leave_reward > 0]
    for index in sorted(asked, key=lambda index: (-incumbents[index].leave_reward, index)):
        if not (moving and migrate_incumbent(ledger, index)):
            mark, before = ledger.undo.mark(), ledger.objective
            if not stop_incumbent(ledger, index) or ledger.objective <= before:
                ledger.undo.rollback(mark)


def migrate_incumbent(ledger: Ledger, index: int) -> bool:
    """Migrate a running job to its first option that pays; False, and nothing changes, if none does."""
    job_class = ledger.problem.incumbents[index].move
    if job_class is None:
        return False
    mark, before = ledger.undo.mark(), ledger.objective
    for option in ledger.problem.classes[job_class].options:
        gone = vacate_for_move(ledger, index)
        if gone and placement.place(ledger, job_class, option, jobs=1) and ledger.objective > before:
            return True
        ledger.undo.rollback(mark)
    return False


def restore_preempted(ledger: Ledger) -> None:
    """
    Restore running jobs on their places, fully or in part, where that pays.

    First jobs with free places, if it costs nothing; then jobs that are worth more than the new jobs there.
    """
    problem = ledger.problem
    _undo_moves(ledger)
    gone = ledger.disruptions.having(DisruptionKind.STOP, DisruptionKind.SHRINK)
    for index in sorted(gone, key=lambda index: (problem.incumbents[index].stop_points or 0, index)):
        mark, before = ledger.undo.mark(), ledger.objective
        if restore_incumbent(ledger, index) and ledger.objective >= before:
            continue
        ledger.undo.rollback(mark)
        if problem.incumbents[index].shrinkable:
            cancel_resumption(ledger, index)
            _restore_replicas(ledger, index)
            if ledger.objective < before:
                ledger.undo.rollback(mark)
    least = _least_points_by_node(ledger)
    for index in ledger.disruptions.having(DisruptionKind.STOP, DisruptionKind.SHRINK):
        nodes = {hold.node for hold in problem.incumbents[index].holds}
        worths, gained = [least[node] for node in nodes if node in least], _most_gained(ledger, index)
        incumbent = problem.incumbents[index]
        owed = ledger.queues.quota.points_of([(incumbent.queue, incumbent.gpu_model, incumbent.quota_milli)])
        if worths and min(worths) >= gained + owed:
            continue  # no new job there is worth less
        mark, before = ledger.undo.mark(), ledger.objective
        if not restore_by_eviction(ledger, index, gained - 1) or ledger.objective <= before:
            ledger.undo.rollback(mark)


def _undo_moves(ledger: Ledger) -> None:
    """Let migrating jobs stay where their old places are free, if it costs nothing."""
    classes = ledger.problem.classes
    moving = {classes[placed.job_class].incumbent: number for number, placed in ledger.placed.items()}
    for index in ledger.disruptions.having(DisruptionKind.MOVE):
        if index not in moving:
            continue
        mark, before = ledger.undo.mark(), ledger.objective
        ledger.remove(moving[index])
        if not restore_incumbent(ledger, index) or ledger.objective < before:
            ledger.undo.rollback(mark)


def _most_gained(ledger: Ledger, index: int) -> int:
    """Upper bound on the points of restoring a running job, without guarantees and new jobs it displaces."""
    gained = ledger.disruptions.loss(index) - min(0, ledger.affinity.points)
    if ledger.problem.charges.fragmentation or _shares_node_with_mig(ledger, index):
        gained -= min(0, ledger.capacity.points)
    return gained


def _shares_node_with_mig(ledger: Ledger, index: int) -> bool:
    """True if new MIG instances are where a running job was; without them layouts may be as before."""
    nodes = {hold.node for hold in ledger.problem.incumbents[index].holds if hold.node is not None}
    there = {number for node in nodes for number in ledger.sites.numbers_on.get(node, ())}
    return any(site.slices for number in there for site in ledger.placed[number].sites)


def _least_points_by_node(ledger: Ledger) -> dict[int | None, int]:
    """By node, the points of the new job on it that is worth least."""
    least: dict[int | None, int] = {}
    for placed in ledger.placed.values():
        worth = ledger.worth(placed)
        for site in placed.sites:
            least[site.node] = min(worth, least.get(site.node, worth))
    return least


def _restore_replicas(ledger: Ledger, index: int) -> None:
    """Restore as many replicas as find their places free."""
    for position in restorable_replicas(ledger, index):
        mark, before = ledger.undo.mark(), ledger.objective
        disruption = ledger.disruptions[index]
        if disruption is None or position not in disruption.given_up:
            continue
        back = [position]
        if disruption.kind is DisruptionKind.STOP:
            back = restorable_replicas(ledger, index)[: ledger.problem.incumbents[index].min_replicas]
        if not restore_incumbent(ledger, index, back) or ledger.objective < before:
            ledger.undo.rollback(mark)
