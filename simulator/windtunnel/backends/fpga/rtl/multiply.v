// a * b, LANES elements per cycle, with fp_mul. An input word holds LANES elements of a (low bits) and of b (high
// bits).
//
// It is not an operation of the registry. It exists to compare fp_mul with NumPy, as vector_add does for fp_add.
module multiply #(
    parameter LANES = 16,
    parameter EXP = 8,
    parameter MAN = 23,
    parameter OEXP = 8,
    parameter OMAN = 23
) (
    input  wire                             clk,
    input  wire                             rst,
    input  wire                             in_valid,
    output wire                             in_ready,
    input  wire [2*LANES*(1+EXP+MAN)-1:0]   in_data,
    output wire                             out_valid,
    input  wire                             out_ready,
    output wire [LANES*(1+OEXP+OMAN)-1:0]   out_data
);
    localparam W = 1 + EXP + MAN;
    localparam OW = 1 + OEXP + OMAN;
    wire en;

    stream_control #(.LATENCY(4)) control (
        .clk(clk), .rst(rst), .en(en),
        .in_valid(in_valid), .in_ready(in_ready), .out_valid(out_valid), .out_ready(out_ready)
    );

    genvar i;
    generate
        for (i = 0; i < LANES; i = i + 1) begin : g_lane
            fp_mul #(.EXP(EXP), .MAN(MAN), .OEXP(OEXP), .OMAN(OMAN)) multiplier (
                .clk(clk), .en(en), .a(in_data[i*W +: W]), .b(in_data[(LANES+i)*W +: W]),
                .product(out_data[i*OW +: OW])
            );
        end
    endgenerate
endmodule
