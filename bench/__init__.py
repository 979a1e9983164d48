"""kvgate beside its peers: what a gateway costs on one core, measured in one run on one machine.

Rule: only figures of one run are compared, as ratios, and the CPU time is the kernel's own account of every process
that the gateway consists of.
"""
