"""Charts drawn with matplotlib; no other package imports matplotlib."""
