"""What a run looks like to people: the terminal's answer, the report in a browser, the trace and the tables."""
