"""Pools of engine replicas: demand, choice, connections, framing, health."""
