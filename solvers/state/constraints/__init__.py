"""State that the ledger keeps for each rule."""
