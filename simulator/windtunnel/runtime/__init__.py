"""What a program under test holds: one interface for emulated devices and for real ones."""
