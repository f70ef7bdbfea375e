"""How simulated time passes: arrivals, job programs made into segments, stations, the process engine."""
