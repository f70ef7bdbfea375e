"""The back end `packets`."""
