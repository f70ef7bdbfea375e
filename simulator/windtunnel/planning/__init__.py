"""Choosing before building: which way to drive a device."""
