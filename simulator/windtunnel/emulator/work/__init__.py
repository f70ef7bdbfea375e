"""Counting of what a launch does: operations, memory traffic, bank conflicts and divergence."""
