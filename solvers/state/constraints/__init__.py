"""What the ledger keeps for each rule."""
