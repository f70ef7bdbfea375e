"""The back end `hip`."""
