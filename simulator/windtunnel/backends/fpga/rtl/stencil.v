// One sweep of a 7-point stencil (5 points where there is one plane), LANES cells of a row each cycle:
//
//     out = centre * c0 + (((west + east) + (north + south)) + (below + above)) * c1
//
// Cells beyond the edges count as zero. The grid comes row by row, plane by plane; a row is `row_words` words, its last
// one filled up with zeros. A shift register through block RAM holds two planes, so every cell is read once: a cell
// comes out once the plane below it is in, and at the end the register is emptied by itself.
module stencil #(
    parameter LANES = 4,
    parameter EXP = 8,
    parameter MAN = 23,
    parameter DEPTH = 4096,  // words that a plane may have
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
