"""What differs between plans, and between a plan and the cluster of today."""
