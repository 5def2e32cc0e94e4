"""A plan as data: its actions with reasons and preconditions, and what is recorded of them."""
