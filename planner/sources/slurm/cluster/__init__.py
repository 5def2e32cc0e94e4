"""The cluster itself: nodes, pools, partitions, accounts and reservations."""
