"""What the product believes: nouns, the formulation and the verifier; pure, no I/O, no solver, no clock."""
