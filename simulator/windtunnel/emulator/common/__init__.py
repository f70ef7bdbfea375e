"""What both ways of execution share: thread positions, values, arithmetic and the emission of source text."""
