"""The back end `fpga`."""
