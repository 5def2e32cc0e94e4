"""
The verifier: every rule of a plan judged again, and the objective it earns, computed again.

It imports nothing of the formulation, the problem and the solvers, and shares no rule with them: import
rules keep these apart. The rest of the product uses `verify` alone. What the verifier shares with what it
judges is its trusted base, listed here in full. A mistake in a trusted module would be made on both sides,
so its arithmetic has tests of its own: against cases computed by hand, tables of the manufacturer, or a
plain second computation.

Nouns, which hold data and no rule:
    base units affinity cluster calendar gang job placement snapshot health.measurement
    plan.action_kinds plan.solution plan.violation policy.approval
    policy.policy policy.settings

Arithmetic:
    json_frame (texts of documents), mig (geometry of MIG layouts),
    queue (limits up the queue tree), dependency (retries left and back-off),
    timing.progress (work done and lost),
    timing.time_slots, timing.durations, timing.gittins_index, timing.reservation_windows, timing.starvation,
    value.disruption_cost, value.job_value, value.list_schedule, value.queue_rollout, value.rollout_scope,
    value.scaled_sizes, value.start_value
"""
