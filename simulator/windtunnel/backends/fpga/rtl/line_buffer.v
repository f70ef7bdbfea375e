// A delay of `length` words, from 0 to DEPTH: a ring of block RAM with a registered read.
//
// `length` stays the same while words pass. What comes out before `length` words have gone in is undefined.
module line_buffer #(
    parameter WIDTH = 8,
    parameter DEPTH = 1024,
    parameter BITS = 16
) (
    input  wire             clk,
    input  wire             rst,
    input  wire             en,
    input  wire [BITS-1:0]  length,
    input  wire [WIDTH-1:0] d,
    output wire [WIDTH-1:0] q
);
    localparam SPOTS = DEPTH < 2 ? 2 : DEPTH;
    localparam ADDRESS = $clog2(SPOTS);
    localparam [BITS-1:0] ONE = 1;

    reg [WIDTH-1:0] ring [0:SPOTS-1];
    reg [WIDTH-1:0] held;
    reg [BITS-1:0] at;
    wire [BITS-1:0] next = at + ONE >= length ? {BITS{1'b0}} : at + ONE;

    // What is read now is out in the next cycle: the word that went in `length` - 1 cycles ago.
    always @(posedge clk) begin
        if (en) begin
            ring[at[ADDRESS-1:0]] <= d;
            held <= length == ONE ? d : ring[next[ADDRESS-1:0]];
        end
    end
    always @(posedge clk) begin
        if (rst) at <= {BITS{1'b0}};
        else if (en) at <= next;
    end
    assign q = length == 0 ? d : held;
endmodule
