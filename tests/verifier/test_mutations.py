"""
Would the tests of the rules notice? Bugs planted in the verifier, one at a time, must each fail one of them.

Each bug replaces one piece of a source file. The examples of the test file named must pass before and at
least one of them must fail after. Examples take no arguments, so that they can be called here.
"""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from planner.models import (
    verifier,
    verifier_capacity_rules,
    verifier_case,
    verifier_disruption_rules,
    verifier_job_rules,
    verifier_mig_rule,
    verifier_order_rule,
    verifier_place_rules,
    verifier_pool_rules,
    verifier_queue_rules,
    verifier_terms,
    verifier_usage,
    verifier_words,
)
from planner.models.violation import Rule

CASE, USAGE, WORDS = verifier_case, verifier_usage, verifier_words
JOB, PLACE, DISRUPTION, ORDER = (
    verifier_job_rules,
    verifier_place_rules,
    verifier_disruption_rules,
    verifier_order_rule,
)
CAPACITY, MIG, QUEUES, POOLS = (
    verifier_capacity_rules,
    verifier_mig_rule,
    verifier_queue_rules,
    verifier_pool_rules,
)
TERMS = verifier_terms
MODULES = (verifier, CASE, USAGE, WORDS, JOB, PLACE, DISRUPTION, ORDER, CAPACITY, MIG, QUEUES, POOLS, TERMS)

# ruff: noqa: E501 - one bug a line
PLANTED = (
    ("assignment", JOB, "if times > 1:", "if times > 2:"),
    ("assignment", JOB, "if name not in case.jobs:", "if False:"),
    ("assignment", JOB, "if job.held:", "if False:"),
    ("assignment", JOB, "if placement.slot:", "if placement.slot > 1:"),
    ("assignment", JOB, "case.with_change(Change.STARTED)", "((one.job, one) for one in case.occupants if one.job)"),
    ("eviction", CASE, "return one == other or Counter", "return len(one) == len(other) or Counter"),
    ("eviction", CASE, "return one == other or Counter(map(holding, one)) == Counter(map(holding, other))", "return one == other"),
    ("eviction", CASE, "Counter(map(holding, one)) == Counter(map(holding, other))", "set(map(holding, one)) <= set(map(holding, other))"),
    ("eviction", CASE, '(held.index, held.milli, "", 0)', '(held.milli, "", 0)'),
    ("eviction", CASE, '(held.index, held.milli, "", 0)', '(held.index, "", 0)'),
    ("eviction", CASE, "        replica.node,\n", ""),
    ("eviction", CASE, "if amount))", "))"),
    ("eviction", CASE, "unused[holding(replica)] -= 1", "pass"),
    ("eviction", CASE, "if len(before) == len(after):", "if False:"),
    ("eviction", CASE, "    if not gone:", "    if len(after) > len(before):"),
    ("eviction", CASE, "    if not new:", "    if len(after) < len(before):"),
    ("eviction", CASE, "positions.sort(key=lambda index: _precedence(found[index]))", "pass"),
    ("eviction", CASE, "    return occupant.change is not Change.KEPT, sorted", "    return False, sorted"),
    ("eviction", CASE, "job.name not in placed)", "False)"),
    ("eviction", DISRUPTION, "allowed=rules.preempt):", "allowed=True):"),
    ("eviction", DISRUPTION, "allowed=rules.migrate)", "allowed=rules.preempt)"),
    ("eviction", DISRUPTION, "        return\n    if not allowed:", "        pass\n    if not allowed:"),
    ("eviction", DISRUPTION, '    if not job.preemptible:\n        yield "it is not preemptible"\n    if job.running and any(', "    if job.running and any("),
    ("eviction", DISRUPTION, '    if not job.preemptible:\n        yield "it is not preemptible"\n    if job.running:\n', "    if job.running:\n"),
    ("eviction", DISRUPTION, "node.drain for replica", "not node.schedulable or node.name for replica"),
    ("eviction", DISRUPTION, "if job.running and any(", "if job.running and all("),
    ("eviction", DISRUPTION, "if ran < least:", "if ran <= least:"),
    ("eviction", DISRUPTION, "if ran < least:", "if False:"),
    ("eviction", DISRUPTION, "    if job.locality.required:", "    if False:"),
    ("eviction", DISRUPTION, "    if job.spread:", "    if False:"),
    ("eviction", DISRUPTION, "reasons = _against_growing(case, job)", "reasons = _against_shrinking(case, job)"),
    ("eviction", DISRUPTION, "reasons = _against_shrinking(case, job)", "reasons = _against_growing(case, job)"),
    ("eviction", DISRUPTION, "case Change.REPLACED:", "case Change.UNKNOWN:"),
    ("gang", JOB, "if not least <= count <= most:", "if not least < count <= most:"),
    ("gang", JOB, "if not least <= count <= most:", "if count > most:"),
    ("gang", JOB, "if not least <= count <= most:", "if count < least:"),
    ("gang", JOB, "if not least <= count <= most:", "if count != most:"),
    ("gang", JOB, "if len(models) > 1:", "if len(models) > 2:"),
    ("gang", JOB, "case.gpu_models(replicas)", "case.gpu_models(occupant.new_replicas)"),
    ("gang", JOB, "    for job, occupant in case.changed:", "    for job, occupant in case.with_change(Change.STARTED):"),
    ("gang", CASE, "for replica in replicas if replica.gpus)", "for replica in replicas)"),
    ("request", JOB, "if held_gpus != wanted_gpus else []", "if len(held_gpus) != len(wanted_gpus) else []"),
    ("request", JOB, "if held_gpus != wanted_gpus else []", "if len(held_gpus) < len(wanted_gpus) else []"),
    ("request", JOB, "if indices.count(index) > 1", "if indices.count(index) > 2"),
    ("request", JOB, "if held.get(unit, 0) != wanted.get(unit, 0)", "if held.get(unit, 0) > wanted.get(unit, 0)"),
    ("request", JOB, "if held.get(unit, 0) != wanted.get(unit, 0)", "if held.get(unit, 0) < wanted.get(unit, 0)"),
    ("request", JOB, "for unit in held.keys() | wanted.keys()", "for unit in wanted"),
    ("request", JOB, "for _ in range(count)", "for _ in range(1)"),
    ("request", JOB, "for number in occupant.new:", "for number in range(len(occupant.placement.replicas)):"),
    ("request", JOB, "for job, occupant in case.arrivals:", "for job, occupant in case.with_change(Change.STARTED):"),
    ("selection", PLACE, "if not node.ready:", "if False:"),
    ("selection", PLACE, "if node.cordoned:", "if False:"),
    ("selection", PLACE, "if node.drain:", "if False:"),
    ("selection", PLACE, "for key, value in job.node_selector.items():", "for key, value in list(job.node_selector.items())[:1]:"),
    ("selection", PLACE, "if node.labels.get(key) != value:", "if key not in node.labels:"),
    ("selection", PLACE, "for match in job.affinity:", "for match in job.affinity[:1]:"),
    ("selection", PLACE, "for match in job.affinity:", "for match in job.affinity[1:]:"),
    ("selection", PLACE, "if job.regions and node.region not in job.regions:", "if node.region and job.regions and node.region not in job.regions:"),
    ("selection", PLACE, "if job.regions and node.region not in job.regions:", "if job.regions and node.region != job.regions[0]:"),
    ("selection", PLACE, "for taint in node.taints:", "for taint in node.taints[:1]:"),
    ("selection", PLACE, "or held.index >= gpus.count:", "or held.index > gpus.count:"),
    ("selection", PLACE, "if not gpus.by_index[held.index].healthy:", "if False:"),
    ("selection", PLACE, "if job.gpu_models and", "if"),
    ("selection", PLACE, "< (needed :=", "<= (needed :="),
    ("selection", PLACE, "return gpus.memory_mib * held.milli // MILLI", "return gpus.memory_mib"),
    ("selection", PLACE, "return gpus.memory_mib * held.milli // MILLI", "return -(-gpus.memory_mib * held.milli // MILLI)"),
    ("selection", PLACE, "[held.profile].memory_slices //", "[held.profile].compute_slices //"),
    ("selection", PLACE, "if gpus.time_sliced and not job.time_slicing and", "if gpus.time_sliced and"),
    ("selection", PLACE, "if gpus.time_sliced and not", "if not"),
    ("selection", PLACE, "isinstance(held, GpuShare) and held.milli < MILLI:", "isinstance(held, GpuShare):"),
    ("selection", PLACE, "if case.is_added(name) and node.gpus and not job.request.needs_gpu:", "if node.gpus and not job.request.needs_gpu:"),
    ("selection", PLACE, "if case.is_added(name) and node.gpus and not job.request.needs_gpu:", "if case.is_added(name) and not job.request.needs_gpu:"),
    ("selection", PLACE, "if case.is_added(name) and node.gpus and not job.request.needs_gpu:", "if case.is_added(name) and node.gpus:"),
    ("selection", PLACE, "if case.is_added(name) and node.gpus and not job.request.needs_gpu:", "if False:"),
    ("selection", PLACE, "    for job, occupant in case.arrivals:", "    for job, occupant in case.changed if False else case.with_change('started'):"),
    ("selection", PLACE, "for name in sorted({replica.node for replica in occupant.new_replicas}):", "for name in sorted({replica.node for replica in occupant.placement.replicas}):"),
    ("locality", PLACE, "        if len(names) <= 1:", "        if len(names) < 1:"),
    ("locality", PLACE, "        if len(names) <= 1:", "        if len(names) <= 2:"),
    ("locality", PLACE, "level = job.locality.required", "level = job.locality.required or job.locality.preferred"),
    ("locality", PLACE, "if None in domains:", "if False:"),
    ("locality", PLACE, "elif len(domains) > 1:", "elif len(domains) > 2:"),
    ("spread", PLACE, "if count > most:", "if count > most + 1:"),
    ("spread", PLACE, "if count > most:", "if count >= most:"),
    ("spread", PLACE, "level, most = job.spread.level, job.spread.most", "level, most = Level.NODE, job.spread.most"),
    ("spread", PLACE, "Counter(case.domain(replica.node, level) for replica in occupant.placement.replicas)", "Counter(case.domain(replica.node, level) for replica in occupant.new_replicas)"),
    ("spread", PLACE, "Counter(case.domain(replica.node, level) for replica in occupant.placement.replicas)", "Counter(case.domain(name, level) for name in {one.node for one in occupant.placement.replicas})"),
    ("spread", CASE, 'or ("",) * 5 + (name,)', 'or ("",)'),
    ("preemption", DISRUPTION, "job.priority >= victim.priority + gap", "job.priority > victim.priority + gap"),
    ("preemption", DISRUPTION, "job.priority >= victim.priority + gap", "job.priority >= victim.priority + 1"),
    ("preemption", DISRUPTION, "job.priority >= victim.priority + gap", "job.priority >= gap"),
    ("preemption", DISRUPTION, "min(jobs, key=lambda job: (-job.priority, job.name))", "jobs[0]"),
    ("preemption", DISRUPTION, "if node and node.schedulable:", "if node:"),
    ("preemption", DISRUPTION, "if job.queue not in borrowing else ()", ""),
    ("preemption", DISRUPTION, "losers += [(job, _given_up(job, occupant)) for job, occupant in case.with_change(Change.SHRUNK)]", "pass"),
    ("preemption", DISRUPTION, "losers += [(job, _given_up(job, occupant))", "losers += [(job, job.running.replicas)"),
    ("preemption", DISRUPTION, "losers += [(job, _given_up(job, occupant)) for job, occupant in case.with_change(Change.SHRUNK)]", "losers += [(job, job.running.replicas) for job, _ in case.with_change(Change.MOVED)]"),
    ("preemption", DISRUPTION, "for replica in occupant.new_replicas:", "for replica in occupant.placement.replicas:"),
    ("preemption", DISRUPTION, "held[name] > guarantee}", "held[name] >= guarantee}"),
    ("preemption", DISRUPTION, "queue.quota and queue.quota.guarantee is not None", "queue.quota and queue.quota.guarantee"),
    ("preemption", DISRUPTION, "held = with_all_below(queues, of_resource(usage, ALL_MODELS))", "held = {q.name: 0 for q in queues} | of_resource(usage, ALL_MODELS)"),
    ("preemption", DISRUPTION, "usage_by_queue_and_model(case, case.snapshot.running_placements)", "usage_by_queue_and_model(case, case.placements)"),
    ("anti_affinity", PLACE, "frozenset(avoided.labels.items()), avoided.level]", "frozenset(avoided.labels.items()), Level.NODE]"),
    ("anti_affinity", PLACE, "each.job and labels <= each.job.labels.items())", "each.job and labels & each.job.labels.items())"),
    ("anti_affinity", PLACE, "if other != name]:", "]:"),
    ("anti_affinity", PLACE, "(bearers if new else newcomers)", "bearers"),
    ("anti_affinity", PLACE, "(bearers if new else newcomers)", "newcomers"),
    ("anti_affinity", PLACE, "(bearers if new else newcomers)", "(bearers if new else ())"),
    ("anti_affinity", PLACE, "jobs[name] = jobs.get(name, False) or number in occupant.new", "jobs[name] = jobs.get(name, False) or bool(occupant.new)"),
    ("anti_affinity", CASE, 'or ("",) * 5 + (name,)', 'or ("",)'),
    ("staircase", CAPACITY, "if any(milli == MILLI for _, milli in shares):", "if all(milli == MILLI for _, milli in shares):"),
    ("staircase", CASE, "holders.get((replica.node, held.index))", "holders.get((replica.node, 0))"),
    ("staircase", CASE, "holders.get((replica.node, held.index))", "holders.get((self.placements[0].replicas[0].node, held.index))"),
    ("staircase", CASE, "            if occupant.new\n            for replica in occupant.new_replicas\n            for held", "            for replica in occupant.placement.replicas\n            for held"),
    ("sharing", CAPACITY, "for _, milli in shares) > MILLI:", "for _, milli in shares) >= MILLI:"),
    ("sharing", CAPACITY, "for _, milli in shares) > MILLI:", "for _, milli in shares) > MILLI + 1:"),
    ("mig", MIG, "    if present is None and not new:\n        return\n", ""),
    ("mig", MIG, "        if isinstance(holder.held, GpuShare):\n            yield", "        if present and isinstance(holder.held, GpuShare):\n            yield"),
    ("mig", MIG, "        if isinstance(holder.held, GpuShare):\n            yield", "        if present is not None and isinstance(holder.held, GpuShare):\n            yield"),
    ("mig", MIG, "if instance in present or", "if instance.profile in {one.profile for one in present} or"),
    ("mig", MIG, "if instance in present or", "if"),
    ("mig", MIG, "(policy.repartition and known)", "known"),
    ("mig", MIG, "(policy.repartition and known)", "policy.repartition"),
    ("mig", MIG, "return None if policy.switch_mode else", "return None if policy.repartition else"),
    ("mig", MIG, "        if not known:", "        if False:"),
    ("mig", MIG, "if len(users[instance]) > 1:", "if False:"),
    ("mig", MIG, "            if not holder.kept:\n                new.add(instance)", "            new.add(instance)"),
    ("mig", MIG, "geometry.faults(users)", "geometry.faults(new)"),
    ("mig", MIG, "geometry.faults(users)", "geometry.faults({*users, *(present or ())})"),
    ("mig", MIG, "geometry.faults(users)", "()"),
    ("compute", CAPACITY, "if amount > allowed:", "if amount >= allowed:"),
    ("compute", CAPACITY, "if amount > allowed:", "if amount > allowed + 1:"),
    ("compute", CAPACITY, "staying[name][unit] if name in staying else 0)", "0)"),
    ("compute", CAPACITY, "allowed = max(offered.get(unit, 0), ", "allowed = (offered.get(unit, 0) + "),
    ("compute", CAPACITY, "held.setdefault(replica.node, ", "held.setdefault(placement.replicas[0].node, "),
    ("compute", CAPACITY, "        for replica in placement.replicas:\n            if replica.node in names:", "        for replica in placement.replicas[:1]:\n            if replica.node in names:"),
    ("compute", CAPACITY, "        and job.qos is not QosClass.GUARANTEED\n", ""),
    ("compute", CAPACITY, "-(-replica.cpu_milli * MILLI // ratio.cpu_milli)", "replica.cpu_milli * MILLI // ratio.cpu_milli"),
    ("compute", CAPACITY, "-(-replica.memory_mib * MILLI // ratio.memory_milli)", "-(-replica.memory_mib * MILLI // ratio.cpu_milli)"),
    ("compute", CAPACITY, "overcommit.get(job.qos)", "overcommit.get(QosClass.BURSTABLE)"),
    ("power", CAPACITY, "if node.power_cap_watts and node.gpus and node.gpus.watts", "if False"),
    ("power", CAPACITY, "> allowed:\n            yield Violation(Rule.POWER", ">= allowed:\n            yield Violation(Rule.POWER"),
    ("power", CAPACITY, "max(watts * MILLI, sum(drawn_by_staying[name] for name in names))", "watts * MILLI"),
    ("power", CAPACITY, "(node.region, node.zone, node.rack) == place", "node.rack == rack.rack"),
    ("power", CAPACITY, "for node in case.nodes.values() if (node.region", "for node in case.snapshot.cluster.nodes if (node.region"),
    ("power", CAPACITY, "gpu_milli(replica) * node.gpus.watts", "len(replica.gpus) * MILLI * node.gpus.watts"),
    ("power", USAGE, "return profile_milli(held.profile)", "return MILLI"),
    ("queues", QUEUES, "if used[queue.name] > allowed:", "if used[queue.name] >= allowed:"),
    ("queues", QUEUES, "if used[queue.name] > allowed:", "if used[queue.name] > allowed + 1:"),
    ("queues", QUEUES, "allowed = max(limit[queue.name], used_by_staying[queue.name])", "allowed = limit[queue.name]"),
    ("queues", QUEUES, "for resource in (ALL_MODELS, *models):", "for resource in (ALL_MODELS,):"),
    ("queues", QUEUES, "for resource in (ALL_MODELS, *models):", "for resource in models:"),
    ("queues", QUEUES, "lending = inf if quota.lending_limit is None else quota.lending_limit", "lending = inf"),
    ("queues", QUEUES, "borrowing = inf if quota.borrowing_limit is None else quota.borrowing_limit", "borrowing = inf"),
    ("queues", QUEUES, "subtree if queue.parent is None else subtree + borrowing", "subtree + borrowing"),
    ("queues", QUEUES, "kept[queue.name] = max(0, subtree - lending)", "kept[queue.name] = 0"),
    ("queues", QUEUES, "kept[queue.name] = max(0, subtree - lending)", "kept[queue.name] = subtree"),
    ("queues", QUEUES, "lent[queue.parent].append(min(subtree, lending))", "lent[queue.parent].append(subtree)"),
    ("queues", QUEUES, "subtree = quota.nominal + sum(part for part in from_children if part < inf)", "subtree = quota.nominal"),
    ("queues", QUEUES, "sum(part for part in from_children if part < inf)", "sum(from_children)"),
    ("queues", QUEUES, "subtree = sum(from_children) if from_children else inf", "subtree = sum(from_children)"),
    ("queues", QUEUES, "subtree = sum(from_children) if from_children else inf", "subtree = inf"),
    ("queues", USAGE, "if resource in (ALL_MODELS, model):", "if True:"),
    ("queues", USAGE, "return profile_milli(held.profile)", "return MILLI"),
    ("pools", POOLS, "if not case.policy.pools.scale_up:", "if False:"),
    ("pools", POOLS, "if not case.policy.pools.scale_down:", "if False:"),
    ("pools", POOLS, "if node.name in case.snapshot.cluster.node_by_name:", "if False:"),
    ("pools", POOLS, "if times[node.name] > 1:", "if False:"),
    ("pools", POOLS, "if times > 1:", "if False:"),
    ("pools", POOLS, "if pool is None:\n", "if False:\n"),
    ("pools", POOLS, '"pool": pool.name, ', ""),
    ("pools", POOLS, ', "ready_at": None', ""),
    ("pools", POOLS, "if getattr(node, name) != getattr(made, name)", "if name != 'labels' and getattr(node, name) != getattr(made, name)"),
    ("pools", POOLS, "if name in growing and size[name] > pool.maximum:", "if size[name] > pool.maximum:"),
    ("pools", POOLS, "if name in growing and size[name] > pool.maximum:", "if name in growing and size[name] >= pool.maximum:"),
    ("pools", POOLS, "if name in shrinking and size[name] < pool.minimum:", "if size[name] < pool.minimum:"),
    ("pools", POOLS, "if name in shrinking and size[name] < pool.minimum:", "if name in shrinking and size[name] <= pool.minimum:"),
    ("pools", POOLS, "Counter(node.pool for node in case.nodes_after)", "Counter(node.pool for node in case.nodes.values())"),
    ("pools", POOLS, "Counter(node.pool for node in case.nodes_after)", "Counter(node.pool for node in case.snapshot.cluster.nodes if node.name not in case.gone)"),
    ("pools", POOLS, "if node is None:", "if node is None and not case.added:"),
    ("pools", POOLS, "if node.pool not in case.pools:", "if node.pool is None:"),
    ("pools", POOLS, "if not node.schedulable:", "if node.cordoned:"),
    ("pools", POOLS, "if name in holders:", "if False:"),
    ("pools", POOLS, "for placement in case.placements:", "for placement in case.snapshot.running_placements:"),
    ("pools", CASE, "{**{node.name: node for node in reversed(self.added)}, **known}", "{**known, **{node.name: node for node in self.added}}"),
    ("order", ORDER, "for part in move.old for taker in takers.get(part, ())}", "for part in move.new for taker in takers.get(part, ())}"),
    ("order", ORDER, "if move.job not in gone and _goes(move, held, room):", "if _goes(move, held, room):"),
    ("order", ORDER, "if any(held[part] - move.old[part] + amount > room[part]", "if any(held[part] + amount > room[part]"),
    ("order", ORDER, "if any(held[part] - move.old[part] + amount > room[part]", "if any(held[part] - move.old[part] + amount >= room[part]"),
    ("order", ORDER, "if any(held[part] - move.old[part] + amount > room[part] for part, amount in move.new.items()):\n        return False", "if any(held[part] - move.old[part] + amount > room[part] for part, amount in move.new.items() if len(part) == 3):\n        return False"),
    ("order", ORDER, "if any(held[part] - move.old[part] + amount > room[part] for part, amount in move.new.items()):\n        return False", "if any(held[part] - move.old[part] + amount > room[part] for part, amount in move.new.items() if len(part) == 2):\n        return False"),
    ("order", ORDER, "    held.subtract(move.old)\n    held.update(move.new)\n    return True", "    held.update(move.new)\n    return True"),
    ("order", ORDER, "max(_offered(case, part), before[part], after[part])", "max(_offered(case, part), after[part])"),
    ("order", ORDER, "max(_offered(case, part), before[part], after[part])", "max(_offered(case, part), before[part])"),
    ("order", ORDER, "if number not in occupant.new]", "]"),
    ("order", ORDER, "        if occupant.job:\n", "        if occupant.job and occupant.change is not Change.GROWN:\n"),
    ("order", ORDER, "        if occupant.job:\n", "        if occupant.job and occupant.change is not Change.SHRUNK:\n"),
    ("order", ORDER, "range(held.start, held.start + (profile.memory_slices if profile else 1))", "range(held.start, held.start + 1)"),
    ("order", ORDER, "(profile.memory_slices if profile else 1)", "(profile.memory_slices if profile else 8)"),
    ("order", ORDER, "slices, milli = range(_MEMORY_SLICES), held.milli", "slices, milli = range(100, 101), held.milli"),
    ("order", ORDER, "parts[replica.node, held.index, _MEDIA] += 1", "pass"),
    ("order", ORDER, "return 1 if part[2] == _MEDIA else MILLI", "return MILLI"),
    ("order", ORDER, "charged_amounts(case, job, replica)", "charged_amounts(case, None, replica)"),
    ("objective", TERMS, "not (job.held or occupant.placement.slot or times[job.name] > 1)", "not (occupant.placement.slot or times[job.name] > 1)"),
    ("objective", TERMS, "not (job.held or occupant.placement.slot or times[job.name] > 1)", "not (job.held or times[job.name] > 1)"),
    ("objective", TERMS, "not (job.held or occupant.placement.slot or times[job.name] > 1)", "not (job.held or occupant.placement.slot)"),
    ("objective", TERMS, "return known or not job.request.needs_gpu", "return True"),
    ("objective", TERMS, "len(models) == 1 and (not", "len(models) >= 1 and (not"),
    ("objective", TERMS, "model, len(replicas))", "model, job.gang.maximum)"),
    ("objective", TERMS, "total = -sum(_value(case, job, job.running.replicas) for job in case.stopped if job.running)", "total = 0"),
    ("objective", TERMS, "total += _value(case, job, replicas) - _value(case, job, job.running.replicas)", "total += _value(case, job, replicas)"),
    ("objective", TERMS, "total += _value(case, job, replicas) - _value(case, job, job.running.replicas)", "pass"),
    ("terms_disruption", TERMS, "for job in case.stopped)", "for job in case.stopped[:1])"),
    ("terms_disruption", TERMS, "return -lost - case.policy.prices.migration * len(moved)", "return -lost - case.policy.prices.migration"),
    ("terms_disruption", TERMS, "return -lost - case.policy.prices.migration * len(moved)", "return -case.policy.prices.migration * len(moved)"),
    ("terms_disruption", TERMS, "if each.change in (Change.SHRUNK, Change.GROWN)]", "if each.change in (Change.SHRUNK,)]"),
    ("terms_disruption", TERMS, "if each.change in (Change.SHRUNK, Change.GROWN)]", "if each.change in (Change.GROWN,)]"),
    ("terms_disruption", TERMS, "draining = {node.name for node in case.snapshot.cluster.nodes if node.drain}", "draining = {'n0'}"),
    ("terms_disruption", TERMS, "job.name not in remain\n", "True\n"),
    ("terms_disruption", TERMS, "if any(replica.node in draining for replica in placement.replicas)\n    }", "if all(replica.node in draining for replica in placement.replicas)\n    }"),
    ("terms_places", TERMS, "and not holder.kept:", "and True:"),
    ("terms_places", TERMS, "created.add((name, index, instance.profile, instance.start))", "created.add((name, 0, instance.profile, instance.start))"),
    ("terms_places", TERMS, "if present is None:", "if not present:"),
    ("terms_places", TERMS, "prices.switch_mode * len(switched)", "0"),
    ("terms_places", TERMS, "if level and occupant.change in (Change.STARTED, Change.MOVED):", "if level:"),
    ("terms_places", TERMS, "if level and occupant.change in (Change.STARTED, Change.MOVED):", "if level and occupant.change is Change.STARTED:"),
    ("terms_places", TERMS, "for name in names}) - 1", "for name in names})"),
    ("terms_places", TERMS, "left_over += free % size", "left_over += free"),
    ("terms_places", TERMS, "if node.gpus and node.schedulable:", "if node.gpus:"),
    ("terms_places", TERMS, "gpu.healthy and gpu.mig is None and", "gpu.healthy and"),
    ("terms_places", TERMS, "gpu.healthy and gpu.mig is None and", "gpu.mig is None and"),
    ("terms_places", TERMS, "for node in case.nodes_after:", "for node in case.snapshot.cluster.nodes:"),
    ("terms_places", TERMS, "for node in case.nodes_after:", "for node in case.nodes.values():"),
    ("terms_places", TERMS, "[(-1, name) for name in added] + [(1, name) for name in removed]", "[(-1, name) for name in added]"),
    ("terms_places", TERMS, " - case.policy.prices.scaling\n", "\n"),
    ("terms_places", TERMS, "dataset.zones.get(node.zone, dataset.elsewhere)", "dataset.zones.get(node.zone, 0)"),
    ("terms_places", TERMS, "total += currency_points(case.policy, cost)", "total += int(cost * case.policy.prices.currency)"),
    ("terms_places", TERMS, "for replica in occupant.new_replicas if read else ():", "for replica in occupant.placement.replicas if read else ():"),
    ("terms_places", TERMS, "for replica in occupant.new_replicas if job.preferred_nodes else ():", "for replica in occupant.placement.replicas:"),
    ("terms_places", TERMS, "if not each.match.holds(node.labels))", "if each.match.holds(node.labels))"),
    ("terms_places", TERMS, "and not _meet(price.classes, before[name])", ""),
    ("terms_places", TERMS, "there[one] >= 2 if one == other", "there[one] >= 1 if one == other"),
    ("terms_places", TERMS, "bool(there[one] and there[other])", "bool(there[one] or there[other])"),
    ("terms_guarantee", TERMS, "min(guaranteed, demand[resource][queue.name])", "guaranteed"),
    ("terms_guarantee", TERMS, "min(guaranteed, demand[resource][queue.name])", "demand[resource][queue.name]"),
    ("terms_guarantee", TERMS, "-(-max(0, due) // MILLI)", "max(0, due) // MILLI"),
    ("terms_guarantee", TERMS, "-(-max(0, due) // MILLI)", "-(-due // MILLI)"),
    ("terms_guarantee", TERMS, "with_all_below(queues, of_resource(after, resource))", "with_all_below(queues, of_resource(before, resource))"),
    ("terms_guarantee", TERMS, "with_all_below(queues, _demand(case, before, resource))", "{q.name: 0 for q in queues} | _demand(case, before, resource)"),
    ("terms_guarantee", TERMS, "defaultdict(int, of_resource(held, resource))", "defaultdict(int)"),
    ("terms_guarantee", TERMS, "usable = resource == ALL_MODELS or not job.gpu_models or resource in job.gpu_models", "usable = True"),
    ("terms_guarantee", TERMS, "usable = resource == ALL_MODELS or not job.gpu_models or resource in job.gpu_models", "usable = not job.gpu_models or resource in job.gpu_models"),
    ("terms_guarantee", TERMS, "job.request.total_gpu_milli * job.gang.maximum", "job.request.total_gpu_milli * job.gang.minimum"),
    ("terms_guarantee", TERMS, "if job.running is None and not job.held and usable:", "if job.running is None and usable:"),
    ("terms_guarantee", TERMS, "if job.running is None and not job.held and usable:", "if not job.held and usable:"),
    ("terms_guarantee", USAGE, "total[queue.parent] += total[queue.name]", "pass"),
)  # fmt: skip


EXAMPLES_OF_TERM = {
    "completion": "objective",
    "preemption": "terms_disruption",
    "migration": "terms_disruption",
    "resize": "terms_disruption",
    "repartition": "terms_places",
    "locality": "terms_places",
    "guarantee": "terms_guarantee",
    "fragmentation": "terms_places",
    "nodes": "terms_places",
    "data": "terms_places",
    "preference": "terms_places",
    "interference": "terms_places",
    "drain": "terms_disruption",
}


def examples(name):
    """The tests of one file, as functions."""
    path = Path(__file__).with_name(f"test_{name}.py")
    spec = importlib.util.spec_from_file_location(f"examples_of_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [value for key, value in vars(module).items() if key.startswith("test_")]


def some_example_fails(name):
    for example in examples(name):
        try:
            example()
        except Exception:  # noqa: BLE001 - a crash is a failure too
            return True
    return False


def plant(monkeypatch, module, old, new):
    """Replace everything the module defines by what its source with the bug defines."""
    source = Path(module.__file__).read_text()
    assert source.count(old) == 1, f"expected one {old!r} in {module.__name__}, found {source.count(old)}"
    bugged = ModuleType(module.__name__)
    exec(compile(source.replace(old, new), module.__file__, "exec"), vars(bugged))
    for name, value in vars(bugged).items():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        original = vars(module)[name]
        for table in (verifier.RULES, verifier.TERMS):
            for key, function in table.items():
                if function is original:
                    monkeypatch.setitem(table, key, value)
        for user in MODULES:
            if vars(user).get(name) is original:
                monkeypatch.setattr(user, name, value)


@pytest.mark.parametrize("name", sorted({name for name, *_ in PLANTED}))
def test_examples_pass_without_a_bug(name):
    assert examples(name)
    assert not some_example_fails(name)


@pytest.mark.parametrize("rule", Rule)
def test_a_rule_that_finds_nothing_is_noticed(monkeypatch, rule):
    monkeypatch.setitem(verifier.RULES, rule, lambda _: iter(()))

    assert some_example_fails(rule)


@pytest.mark.parametrize("term", verifier.TERMS)
def test_a_term_that_is_always_zero_is_noticed(monkeypatch, term):
    monkeypatch.setitem(verifier.TERMS, term, lambda _: 0)

    assert some_example_fails(EXAMPLES_OF_TERM[term])


@pytest.mark.parametrize(("name", "module", "old", "new"), PLANTED)
def test_a_planted_bug_is_noticed(monkeypatch, name, module, old, new):
    plant(monkeypatch, module, old, new)

    assert some_example_fails(name)


def test_every_rule_is_judged():
    assert set(verifier.RULES) == set(Rule)
