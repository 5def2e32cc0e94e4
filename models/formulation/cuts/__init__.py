"""Valid inequalities: they cut off fractional points of the relaxation, and no plan."""
