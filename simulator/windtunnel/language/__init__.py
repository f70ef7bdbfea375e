"""The kernel language: a restricted Python function that runs on emulated devices and becomes source for real ones."""
