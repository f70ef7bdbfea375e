"""The emulated device: context, memory, streams, events, graphs and ring kernels on a virtual clock."""
