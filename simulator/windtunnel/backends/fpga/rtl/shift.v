// DEPTH register stages of WIDTH bits; a wire if DEPTH is 0.
module shift #(
    parameter WIDTH = 1,
    parameter DEPTH = 1
) (
    input  wire             clk,
    input  wire             en,
    input  wire [WIDTH-1:0] d,
    output wire [WIDTH-1:0] q
);
    generate
        if (DEPTH == 0) begin : g_none
            wire unused = clk ^ en;
            assign q = d;
        end else if (DEPTH == 1) begin : g_one
            reg [WIDTH-1:0] held;
            always @(posedge clk) if (en) held <= d;
            assign q = held;
        end else begin : g_many
            reg [DEPTH*WIDTH-1:0] held;
            always @(posedge clk) if (en) held <= {held[(DEPTH-1)*WIDTH-1:0], d};
            assign q = held[DEPTH*WIDTH-1:(DEPTH-1)*WIDTH];
        end
    endgenerate
endmodule
