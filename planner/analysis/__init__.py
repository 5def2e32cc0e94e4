"""Figures and facts about a snapshot and a plan that several packages use."""
