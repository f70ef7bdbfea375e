"""Holding the models against what others state: so far the figures of the founding documents."""
