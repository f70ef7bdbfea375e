"""What `import windtunnel` offers beside simulation: devices for programs, and predictions."""
