"""`windtunnel explore`: a local page on which the numbers of a scenario are varied while it is simulated."""
