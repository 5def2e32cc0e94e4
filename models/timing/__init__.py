"""Time: durations of jobs, slots of the horizon, reservations, starvation."""
