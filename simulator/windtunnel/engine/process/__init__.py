"""The process engine: the transitions of a fleet, in time that SimPy keeps."""
