"""Valid inequalities: they cut off fractions of the relaxation, and no plan."""
