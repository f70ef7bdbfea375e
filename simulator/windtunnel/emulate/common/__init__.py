"""What emulated interfaces have in common: the current device, memory, arrays, pinned memory, handles of streams."""
