"""Finds and opens the devices of this host."""
