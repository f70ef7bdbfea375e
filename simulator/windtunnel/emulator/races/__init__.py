"""Detectors: data races, access footprints, and the findings that are reported in lockstep and thread by thread."""
