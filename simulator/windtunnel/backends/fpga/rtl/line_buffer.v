// A delay of `length` words, from 0 to DEPTH: a ring buffer in block RAM with a registered read.
//
// `length` must not change while words pass. The output is undefined until `length` words have been written.
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

    // The value read now is output in the next cycle: the word that was written `length` - 1 cycles ago.
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
