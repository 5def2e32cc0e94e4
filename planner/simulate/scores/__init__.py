"""What a simulation is judged by."""
