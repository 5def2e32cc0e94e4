"""Many worlds at once: sweeps and sensitivities, over local processes or Dask."""
