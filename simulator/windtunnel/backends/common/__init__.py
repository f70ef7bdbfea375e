"""The common parts of the back ends."""
