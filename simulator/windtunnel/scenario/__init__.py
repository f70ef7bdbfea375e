"""The format of a scenario file, and its checks."""
