"""Fits measurements beyond the formula of a kind: residuals, and the transfer between related devices."""
