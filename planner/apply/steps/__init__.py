"""The steps of one apply: begun when they are ready, observed until they land."""
