"""Snapshots of a host with NVIDIA GPUs through NVML, and the same facts merged into other snapshots."""
