"""The load tester: an emulated engine, traffic, measurement. Drives the gateway and is never imported by it."""
