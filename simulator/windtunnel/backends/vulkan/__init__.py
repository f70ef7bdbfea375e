"""The back end `vulkan`."""
