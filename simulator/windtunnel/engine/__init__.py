"""Simulates time: arrivals, the segments of job programs, stations, and the two simulation engines."""
