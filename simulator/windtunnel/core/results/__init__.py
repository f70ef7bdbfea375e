"""The typed results of runs, comparisons, plans and sweeps. ``data`` writes them as JSON."""
