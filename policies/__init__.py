"""Context policies: a conversation in, edits out. Pure; every policy is one file and one frozen model."""
