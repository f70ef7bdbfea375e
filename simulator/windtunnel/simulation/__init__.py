"""One scenario simulated from its file to its result."""
