"""`python -m windtunnel`."""

from windtunnel.cli.main import script

script()
