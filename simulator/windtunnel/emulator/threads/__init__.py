"""Execution thread by thread: in any order that a seed selects, with happens-before order by vector clocks."""
