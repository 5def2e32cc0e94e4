"""What a plan says of later slots: promises, delays, deadlines, blockers of starts."""
