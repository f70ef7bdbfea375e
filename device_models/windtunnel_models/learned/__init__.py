"""What measurements teach beyond a kind's formula: forms of residuals, and how one device's bear on another."""
