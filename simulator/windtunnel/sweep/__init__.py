"""Sweeps: many scenarios over a grid of values, on processes or a cluster."""
