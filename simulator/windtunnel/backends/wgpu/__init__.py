"""The back end `wgpu`."""
