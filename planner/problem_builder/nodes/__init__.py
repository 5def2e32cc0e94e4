"""Nodes of the problem: groups, free capacity, pools, power caps."""
