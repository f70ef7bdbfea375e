// Valid and ready signals of a pipeline of LATENCY register stages that stalls as a whole.
//
// At either end a word is transferred in a cycle in which valid and ready are both high. While the last stage holds a
// word that is not accepted, no stage advances: `en` is the clock enable of all stages. A stage may be empty.
module stream_control #(
    parameter LATENCY = 1
) (
    input  wire clk,
    input  wire rst,
    input  wire in_valid,
    output wire in_ready,
    output wire out_valid,
    input  wire out_ready,
    output wire en
);
    reg [LATENCY-1:0] full;

    assign out_valid = full[LATENCY-1];
    assign en = !out_valid || out_ready;
    assign in_ready = en;

    generate
        if (LATENCY == 1) begin : g_one
            always @(posedge clk) begin
                if (rst) full <= 1'b0;
                else if (en) full <= in_valid;
            end
        end else begin : g_many
            always @(posedge clk) begin
                if (rst) full <= {LATENCY{1'b0}};
                else if (en) full <= {full[LATENCY-2:0], in_valid};
            end
        end
    endgenerate
endmodule
