"""Sources of snapshots and arrivals: own documents, synthetic workloads, and traces."""
