"""Race detection: access footprints, the happens-before rule, and the findings it reports."""
