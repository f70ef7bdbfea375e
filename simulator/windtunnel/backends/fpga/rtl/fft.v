// Complex FFTs of 2^STEPS points with two points per cycle, as a radix-2 multi-path delay commutator (decimation in
// frequency). There is no feedback, so adders and multipliers may have any number of stages.
//
// Word i of a transform, for i below half its length, holds point i (low bits: real part low, imaginary part high) and
// point i + 2^(STEPS - 1). Results are in bit-reversed order, two per word. Transforms can follow without a gap.
//
// Twiddle factors are read from twiddle.hex: exp(-2 pi i j / 2^STEPS) for j below half of 2^STEPS.
module fft #(
    parameter STEPS = 4,  // at least 2
    parameter EXP = 8,
    parameter MAN = 23,
    parameter P = 2 * (1 + EXP + MAN)  // bits of a point
) (
    input  wire           clk,
    input  wire           rst,
    input  wire           in_valid,
    output wire           in_ready,
    input  wire [2*P-1:0] in_data,
    output wire           out_valid,
    input  wire           out_ready,
    output wire [2*P-1:0] out_data
);
    // The words of a transform must be adjacent in the pipeline. If the source has no word within a transform, the
    // pipeline stalls and has no output. Between transforms it continues.
    reg [STEPS-2:0] place;
    localparam [STEPS-2:0] ONE = 1;
    wire full;
    wire given = in_valid || place == 0;
    wire en = given && (!full || out_ready);
    assign out_valid = full && given;
    assign in_ready = !full || out_ready;

    always @(posedge clk) begin
        if (rst) place <= {STEPS - 1{1'b0}};
        else if (en && in_valid) place <= place + ONE;
    end

    // Between steps: two points, whether they are valid, and whether they are the first of a transform.
    wire [P-1:0] upper [0:STEPS];
    wire [P-1:0] lower [0:STEPS];
    /* verilator lint_off UNUSEDSIGNAL */
    wire [1:0] token [0:STEPS];
    /* verilator lint_on UNUSEDSIGNAL */
    assign upper[0] = in_data[P-1:0];
    assign lower[0] = in_data[2*P-1:P];
    assign token[0] = {in_valid, in_valid && place == 0};

    genvar s;
    generate
        for (s = 0; s < STEPS; s = s + 1) begin : g_step
            fft_step #(.STEPS(STEPS), .STEP(s), .EXP(EXP), .MAN(MAN)) step (
                .clk(clk), .rst(rst), .en(en),
                .token_in(token[s]), .upper_in(upper[s]), .lower_in(lower[s]),
                .token_out(token[s+1]), .upper_out(upper[s+1]), .lower_out(lower[s+1]));
        end
    endgenerate
    assign out_data = {lower[STEPS], upper[STEPS]};
    assign full = token[STEPS][1];
endmodule

// One step: sum and difference; the difference is multiplied by its twiddle factor; then points at a distance of a
// quarter of the block are paired for the next step. The last step computes only sum and difference.
module fft_step #(
    parameter STEPS = 4,
    parameter STEP = 0,
    parameter EXP = 8,
    parameter MAN = 23,
    parameter P = 2 * (1 + EXP + MAN)
) (
    input  wire         clk,
    input  wire         rst,
    input  wire         en,
    input  wire [1:0]   token_in,
    input  wire [P-1:0] upper_in,
    input  wire [P-1:0] lower_in,
    output wire [1:0]   token_out,
    output wire [P-1:0] upper_out,
    output wire [P-1:0] lower_out
);
    localparam W = P / 2;
    localparam ADD = 5, MUL = 4;
    localparam LAST = STEP == STEPS - 1;
    localparam integer APART = LAST ? 0 : 1 << (STEPS - 2 - STEP);
    localparam LATENCY = ADD + (LAST ? 0 : MUL + ADD);

    wire [P-1:0] sum, difference;
    fp_add #(.EXP(EXP), .MAN(MAN)) sum_re (
        .clk(clk), .en(en), .a(upper_in[0 +: W]), .b(lower_in[0 +: W]), .sum(sum[0 +: W]));
    fp_add #(.EXP(EXP), .MAN(MAN)) sum_im (
        .clk(clk), .en(en), .a(upper_in[W +: W]), .b(lower_in[W +: W]), .sum(sum[W +: W]));
    fp_add #(.EXP(EXP), .MAN(MAN)) difference_re (
        .clk(clk), .en(en), .a(upper_in[0 +: W]), .b({!lower_in[W-1], lower_in[0 +: W-1]}), .sum(difference[0 +: W]));
    fp_add #(.EXP(EXP), .MAN(MAN)) difference_im (
        .clk(clk), .en(en), .a(upper_in[W +: W]), .b({!lower_in[P-1], lower_in[W +: W-1]}), .sum(difference[W +: W]));

    // Tokens are delayed by the latency of the arithmetic, and then by that of the exchange.
    reg [LATENCY+APART-1:0] valid, first;
    always @(posedge clk) begin
        if (rst) {valid, first} <= {2 * (LATENCY + APART){1'b0}};
        else if (en) begin
            valid <= {valid[LATENCY+APART-2:0], token_in[1]};
            first <= {first[LATENCY+APART-2:0], token_in[0]};
        end
    end
    assign token_out = {valid[LATENCY+APART-1], first[LATENCY+APART-1]};

    generate
        if (LAST) begin : g_last
            assign upper_out = sum;
            assign lower_out = difference;
        end else begin : g_turn
            localparam BITS = STEPS - 1 - STEP;  // bits of an index in half a block
            localparam [BITS-1:0] ONE = 1;
            reg [P-1:0] twiddles [0:(1<<(STEPS-1))-1];
            initial $readmemh("twiddle.hex", twiddles);

            // The twiddle factor belongs to the difference of the next cycle.
            reg [BITS-1:0] at;
            reg [P-1:0] twiddle;
            wire [BITS-1:0] turned = first[ADD-2] ? {BITS{1'b0}} : at + ONE;
            always @(posedge clk) begin
                if (en) begin
                    at <= turned;
                    twiddle <= twiddles[{{32 - BITS{1'b0}}, turned} << STEP];
                end
            end

            wire [W-1:0] rr, ii, ri, ir;
            wire [P-1:0] held, product;
            fp_mul #(.EXP(EXP), .MAN(MAN), .OEXP(EXP), .OMAN(MAN)) mul_rr (
                .clk(clk), .en(en), .a(difference[0 +: W]), .b(twiddle[0 +: W]), .product(rr));
            fp_mul #(.EXP(EXP), .MAN(MAN), .OEXP(EXP), .OMAN(MAN)) mul_ii (
                .clk(clk), .en(en), .a(difference[W +: W]), .b(twiddle[W +: W]), .product(ii));
            fp_mul #(.EXP(EXP), .MAN(MAN), .OEXP(EXP), .OMAN(MAN)) mul_ri (
                .clk(clk), .en(en), .a(difference[0 +: W]), .b(twiddle[W +: W]), .product(ri));
            fp_mul #(.EXP(EXP), .MAN(MAN), .OEXP(EXP), .OMAN(MAN)) mul_ir (
                .clk(clk), .en(en), .a(difference[W +: W]), .b(twiddle[0 +: W]), .product(ir));
            fp_add #(.EXP(EXP), .MAN(MAN)) product_re (
                .clk(clk), .en(en), .a(rr), .b({!ii[W-1], ii[W-2:0]}), .sum(product[0 +: W]));
            fp_add #(.EXP(EXP), .MAN(MAN)) product_im (.clk(clk), .en(en), .a(ri), .b(ir), .sum(product[W +: W]));
            shift #(.WIDTH(P), .DEPTH(MUL + ADD)) hold (.clk(clk), .en(en), .d(sum), .q(held));

            // The products are delayed by a quarter of a block. Every quarter the two lanes are swapped, and then the
            // upper lane is delayed by a quarter too. This pairs sums with sums, and then products with products.
            reg [BITS-1:0] quarter;
            wire [BITS-1:0] now = first[LATENCY-1] ? {BITS{1'b0}} : quarter + ONE;
            wire [P-1:0] late, above;
            wire crossed = now[BITS-1];
            always @(posedge clk) if (en) quarter <= now;
            line_buffer #(.WIDTH(P), .DEPTH(APART), .BITS(16)) to_late (
                .clk(clk), .rst(rst), .en(en), .length(APART[15:0]), .d(product), .q(late));
            assign above = crossed ? late : held;
            assign lower_out = crossed ? held : late;
            line_buffer #(.WIDTH(P), .DEPTH(APART), .BITS(16)) to_upper (
                .clk(clk), .rst(rst), .en(en), .length(APART[15:0]), .d(above), .q(upper_out));
        end
    endgenerate
endmodule
