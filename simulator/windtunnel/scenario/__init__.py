"""What a scenario file may say, and its checks."""
