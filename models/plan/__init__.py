"""A plan as data: actions with reasons and preconditions, its comparison to now, and its audit records."""
