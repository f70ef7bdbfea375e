"""The back end `cpu`."""
