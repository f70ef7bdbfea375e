"""The parts of `import windtunnel` other than simulation: devices for programs, and predictions."""
