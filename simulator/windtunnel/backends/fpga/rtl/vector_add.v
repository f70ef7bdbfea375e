// c = a + b, LANES elements per cycle. An input word holds LANES elements of a (low bits) and of b (high bits).
//
// FLOAT 1: elements of 1 + EXP + MAN bits, with fp_add. FLOAT 0: integers of 1 + EXP + MAN bits that wrap around.
module vector_add #(
    parameter LANES = 16,
    parameter FLOAT = 1,
    parameter EXP = 8,
    parameter MAN = 23,
    parameter WIDTH = LANES * (1 + EXP + MAN)
) (
    input  wire               clk,
    input  wire               rst,
    input  wire               in_valid,
    output wire               in_ready,
    input  wire [2*WIDTH-1:0] in_data,
    output wire               out_valid,
    input  wire               out_ready,
    output wire [WIDTH-1:0]   out_data
);
    localparam W = 1 + EXP + MAN;
    wire en;

    stream_control #(.LATENCY(FLOAT != 0 ? 5 : 1)) control (
        .clk(clk), .rst(rst), .en(en),
        .in_valid(in_valid), .in_ready(in_ready), .out_valid(out_valid), .out_ready(out_ready)
    );

    genvar i;
    generate
        for (i = 0; i < LANES; i = i + 1) begin : g_lane
            wire [W-1:0] a = in_data[i*W +: W];
            wire [W-1:0] b = in_data[WIDTH + i*W +: W];
            if (FLOAT != 0) begin : g_float
                fp_add #(.EXP(EXP), .MAN(MAN)) adder (
                    .clk(clk), .en(en), .a(a), .b(b), .sum(out_data[i*W +: W])
                );
            end else begin : g_integer
                reg [W-1:0] sum;
                always @(posedge clk) if (en) sum <= a + b;
                assign out_data[i*W +: W] = sum;
            end
        end
    endgenerate
endmodule
