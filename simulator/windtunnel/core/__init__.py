"""The nouns everything else is written in. Imports nothing else of Windtunnel's."""
