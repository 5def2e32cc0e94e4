"""Build the plan from a verified target: its actions, their order, their preconditions and their reasons."""
