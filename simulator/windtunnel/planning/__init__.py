"""Planning: the cheapest fleets that meet targets, and launches or a persistent kernel for a command rate."""
