"""The back end `cuda`."""
