"""The emulated device: memory, streams, events, graphs, kernels and ring kernels on a virtual clock."""
