"""Simulates one scenario, from its file to its result."""
