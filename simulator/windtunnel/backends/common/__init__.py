"""What the back ends share."""
