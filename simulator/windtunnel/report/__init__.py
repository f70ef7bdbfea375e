"""Shows a run to people: the text of the terminal, the report for a browser, the timeline and the tables."""
