"""The version of Windtunnel, which its results state."""

__version__ = "0.1.0"
