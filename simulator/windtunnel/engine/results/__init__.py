"""From recorded events to results: accounting, statistics and metrics."""
