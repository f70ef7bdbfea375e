"""The kernel language: a restricted, typed Python function that runs on emulated devices and becomes source for real ones."""
