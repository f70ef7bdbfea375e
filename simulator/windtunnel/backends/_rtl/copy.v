// A register slice: words of WIDTH bits from one port to the other, one each cycle.
module copy #(
    parameter WIDTH = 512
) (
    input  wire             clk,
    input  wire             rst,
    input  wire             in_valid,
    output wire             in_ready,
    input  wire [WIDTH-1:0] in_data,
    output wire             out_valid,
    input  wire             out_ready,
    output reg  [WIDTH-1:0] out_data
);
    wire en;

    stream_control #(.LATENCY(1)) control (
        .clk(clk), .rst(rst), .en(en),
        .in_valid(in_valid), .in_ready(in_ready), .out_valid(out_valid), .out_ready(out_ready)
    );

    always @(posedge clk) if (en) out_data <= in_data;
endmodule
