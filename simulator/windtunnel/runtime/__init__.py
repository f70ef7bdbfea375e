"""The runtime of a program under test: one interface for emulated and real devices."""
