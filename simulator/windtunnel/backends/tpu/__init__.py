"""The back end `tpu`."""
