"""Many worlds at once: sweeps and sensitivities, on local processes or Dask."""
