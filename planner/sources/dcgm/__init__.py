"""What DCGM exporter measures of GPUs, from a Prometheus that keeps it, as facts of a snapshot."""
