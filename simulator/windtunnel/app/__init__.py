"""The commands as functions, with one module for each command. They are independent of the terminal."""
