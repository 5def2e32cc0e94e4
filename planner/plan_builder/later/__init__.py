"""Parts of a plan about later slots: promises, delays, deadlines, blockers of starts."""
