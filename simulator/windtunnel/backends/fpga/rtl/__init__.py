"""Designs in Verilog, their simulation, and the operands of operations as words.

The ``.v`` files are plain Verilog-2005 and synthesisable, except ``bench.v``. Each design has an input and an output
port with valid and ready signals and stalls as a whole. Parameters set what an HLS pragma would: lanes, widths, rows.
"""
