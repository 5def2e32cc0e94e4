"""One file a rule, or a few of one kind."""
