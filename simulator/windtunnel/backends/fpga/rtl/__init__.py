"""Designs in Verilog, what simulates them, and what an operation's operands look like as their words.

The ``.v`` files are plain Verilog-2005 that synthesises, but for ``bench.v``. Each design has a port in and a port out
with valid and ready, stalls as a whole, and is told by parameters what an HLS pragma would say: lanes, widths, rows.
"""
