"""The asynchronous edge: the only folder that knows all others. `pipeline.py` reads from top to bottom."""
