"""Programs written for other interfaces to accelerators, executed unmodified on emulated devices."""
