"""What rows are about: classes of replicas and nodes, states of nodes, choices of running jobs."""
