"""The verifier: the rules of a plan judged anew, sharing no code with what made the plan."""
