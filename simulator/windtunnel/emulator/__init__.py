"""Accelerators without the hardware: calls that compute on the CPU, and take the device model's time."""
