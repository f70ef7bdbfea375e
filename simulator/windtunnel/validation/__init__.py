"""Holding the models against what others state, and against what was measured."""
