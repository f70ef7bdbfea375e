"""The process engine: a scenario as SimPy events."""
