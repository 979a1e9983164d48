"""What a request costs, what a tenant may use, and the ledger that holds the two together."""
