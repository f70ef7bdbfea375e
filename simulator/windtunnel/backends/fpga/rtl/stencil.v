// One sweep of a 7-point stencil (5 points if there is only one plane), LANES cells of a row per cycle:
//
//     out = centre * c0 + (((west + east) + (north + south)) + (below + above)) * c1
//
// Cells outside the grid count as zero. The grid is sent row by row and plane by plane. A row has `row_words` words,
// the last one padded with zeros. A shift register in block RAM holds two planes, so every cell is read once: a cell is
// output when the plane below it has been read. At the end the register empties without further input.
module stencil #(
    parameter LANES = 4,
    parameter EXP = 8,
    parameter MAN = 23,
    parameter DEPTH = 4096,  // maximum number of words in a plane
    parameter [EXP+MAN:0] C0 = 0,
    parameter [EXP+MAN:0] C1 = 0,
    parameter BITS = 20,
    parameter [BITS-1:0] ROW_WORDS = 1,
    parameter [BITS-1:0] ROWS = 1,
    parameter [BITS-1:0] PLANES = 1,
    parameter WIDTH = LANES * (1 + EXP + MAN)
) (
    input  wire             clk,
    input  wire             rst,
    input  wire             in_valid,
    output wire             in_ready,
    input  wire [WIDTH-1:0] in_data,
    output wire             out_valid,
    input  wire             out_ready,
    output wire [WIDTH-1:0] out_data
);
    stencil_core #(.LANES(LANES), .EXP(EXP), .MAN(MAN), .DEPTH(DEPTH), .BITS(BITS)) core (
        .clk(clk), .rst(rst), .c0(C0), .c1(C1), .row_words(ROW_WORDS), .rows(ROWS), .planes(PLANES),
        .in_valid(in_valid), .in_ready(in_ready), .in_data(in_data),
        .out_valid(out_valid), .out_ready(out_ready), .out_data(out_data)
    );
endmodule
