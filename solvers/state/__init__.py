"""The ledger: what is free and taken now and later, and what that is worth."""
