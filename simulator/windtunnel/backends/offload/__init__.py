"""The back end `offload`."""
