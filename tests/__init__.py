"""Tests: unit (mirror of the tree), property, integration, conformance, fault, perf."""
