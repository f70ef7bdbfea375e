"""Windtunnel's device models: kinds of accelerator, API profiles, and the catalogue of SKUs."""
