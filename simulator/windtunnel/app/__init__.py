"""The commands as functions, one module a command. Nothing here knows the terminal."""
