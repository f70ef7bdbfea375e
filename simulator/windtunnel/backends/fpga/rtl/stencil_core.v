// The stencil of stencil.v. Registers set its grid and coefficients, which must not change while words pass.
module stencil_core #(
    parameter LANES = 4,
    parameter EXP = 8,
    parameter MAN = 23,
    parameter DEPTH = 4096,
    parameter BITS = 20,
    parameter WIDTH = LANES * (1 + EXP + MAN)
) (
    input  wire             clk,
    input  wire             rst,
    input  wire [EXP+MAN:0] c0,
    input  wire [EXP+MAN:0] c1,
    input  wire [BITS-1:0]  row_words,
    input  wire [BITS-1:0]  rows,
    input  wire [BITS-1:0]  planes,
    input  wire             in_valid,
    output wire             in_ready,
    input  wire [WIDTH-1:0] in_data,
    output wire             out_valid,
    input  wire             out_ready,
    output wire [WIDTH-1:0] out_data
);
    localparam W = 1 + EXP + MAN;
    localparam ADD = 5, MUL = 4;
    // One stage selects the neighbours; then sums of two, of four, of six; the product; the last sum.
    localparam STAGES = 1 + 3 * ADD + MUL + ADD;
    localparam [BITS-1:0] ONE = 1;
    localparam [BITS-1:0] NONE = 0;

    // Positions of the input word and of the centre word. Both advance along the grid. The centre starts when the first
    // plane (or the first row, if there is only one plane) has been read. The rest is then processed without input.
    reg [BITS-1:0] in_word, in_row, in_plane, word, row, plane, waited;
    reg filled, drained;
    wire flat = planes == ONE;
    wire [BITS-1:0] plane_words = flat ? row_words : row_words * rows;
    wire [BITS-1:0] between = flat ? NONE : plane_words - row_words;

    wire en;
    wire coming = in_valid && !drained;
    wire moving = en && (drained || in_valid);
    // The first centre word is available when a plane has been read and one more word arrives.
    wire fresh = filled && (drained || coming);

    wire last_in = in_word == row_words - ONE && in_row == rows - ONE && in_plane == planes - ONE;
    wire last_mid = word == row_words - ONE && row == rows - ONE && plane == planes - ONE;

    always @(posedge clk) begin
        if (rst) begin
            {in_word, in_row, in_plane, word, row, plane, waited} <= {7 * BITS{1'b0}};
            {filled, drained} <= 2'b00;
        end else if (moving) begin
            if (coming) begin
                in_word <= in_word == row_words - ONE ? NONE : in_word + ONE;
                if (in_word == row_words - ONE) begin
                    in_row <= in_row == rows - ONE ? NONE : in_row + ONE;
                    if (in_row == rows - ONE) in_plane <= in_plane == planes - ONE ? NONE : in_plane + ONE;
                end
                if (last_in) drained <= 1'b1;
            end
            if (!filled) begin
                waited <= waited + ONE;
                if (waited == plane_words - ONE) filled <= 1'b1;
            end
            if (fresh) begin
                word <= word == row_words - ONE ? NONE : word + ONE;
                if (word == row_words - ONE) begin
                    row <= row == rows - ONE ? NONE : row + ONE;
                    if (row == rows - ONE) plane <= plane == planes - ONE ? NONE : plane + ONE;
                end
                if (last_mid) begin
                    filled <= 1'b0;
                    drained <= 1'b0;
                    waited <= NONE;
                end
            end
        end
    end

    // The input word is the one below the centre (or south of it, if there is only one plane).
    wire [WIDTH-1:0] below = in_data;
    wire [WIDTH-1:0] south, east, middle, west, north, above;
    line_buffer #(.WIDTH(WIDTH), .DEPTH(DEPTH), .BITS(BITS)) to_south (
        .clk(clk), .rst(rst), .en(moving), .length(between), .d(below), .q(south));
    line_buffer #(.WIDTH(WIDTH), .DEPTH(DEPTH), .BITS(BITS)) to_east (
        .clk(clk), .rst(rst), .en(moving), .length(row_words - ONE), .d(south), .q(east));
    shift #(.WIDTH(WIDTH), .DEPTH(1)) to_middle (.clk(clk), .en(moving), .d(east), .q(middle));
    shift #(.WIDTH(WIDTH), .DEPTH(1)) to_west (.clk(clk), .en(moving), .d(middle), .q(west));
    line_buffer #(.WIDTH(WIDTH), .DEPTH(DEPTH), .BITS(BITS)) to_north (
        .clk(clk), .rst(rst), .en(moving), .length(row_words - ONE), .d(west), .q(north));
    line_buffer #(.WIDTH(WIDTH), .DEPTH(DEPTH), .BITS(BITS)) to_above (
        .clk(clk), .rst(rst), .en(moving), .length(between), .d(north), .q(above));

    // Neighbours outside the grid are zero: the register holds a word of another row or plane there.
    wire at_west = word == NONE;
    wire at_east = word == row_words - ONE;
    wire at_north = row == NONE;
    wire at_south = row == rows - ONE;
    wire at_above = plane == NONE;
    wire at_below = plane == planes - ONE;

    wire ready;
    stream_control #(.LATENCY(STAGES)) control (
        .clk(clk), .rst(rst), .en(en),
        .in_valid(fresh), .in_ready(ready), .out_valid(out_valid), .out_ready(out_ready)
    );
    assign in_ready = ready && !drained;

    genvar i;
    generate
        for (i = 0; i < LANES; i = i + 1) begin : g_lane
            reg [W-1:0] c, w, e, n, s, b, a;
            always @(posedge clk) begin
                if (en) begin
                    c <= middle[i*W +: W];
                    n <= at_north ? {W{1'b0}} : north[i*W +: W];
                    s <= at_south ? {W{1'b0}} : south[i*W +: W];
                    b <= at_below ? {W{1'b0}} : below[i*W +: W];
                    a <= at_above ? {W{1'b0}} : above[i*W +: W];
                end
            end
            if (i == 0) begin : g_west
                always @(posedge clk) if (en) w <= at_west ? {W{1'b0}} : west[(LANES-1)*W +: W];
            end else begin : g_middle
                always @(posedge clk) if (en) w <= middle[(i-1)*W +: W];
            end
            if (i == LANES - 1) begin : g_east
                always @(posedge clk) if (en) e <= at_east ? {W{1'b0}} : east[0 +: W];
            end else begin : g_within
                always @(posedge clk) if (en) e <= middle[(i+1)*W +: W];
            end

            wire [W-1:0] we, ns, ba, ba_later, four, six, sides, c_later, centre;
            fp_add #(.EXP(EXP), .MAN(MAN)) add_we (.clk(clk), .en(en), .a(w), .b(e), .sum(we));
            fp_add #(.EXP(EXP), .MAN(MAN)) add_ns (.clk(clk), .en(en), .a(n), .b(s), .sum(ns));
            fp_add #(.EXP(EXP), .MAN(MAN)) add_ba (.clk(clk), .en(en), .a(b), .b(a), .sum(ba));
            fp_add #(.EXP(EXP), .MAN(MAN)) add_four (.clk(clk), .en(en), .a(we), .b(ns), .sum(four));
            shift #(.WIDTH(W), .DEPTH(ADD)) hold_ba (.clk(clk), .en(en), .d(ba), .q(ba_later));
            fp_add #(.EXP(EXP), .MAN(MAN)) add_six (.clk(clk), .en(en), .a(four), .b(ba_later), .sum(six));
            fp_mul #(.EXP(EXP), .MAN(MAN), .OEXP(EXP), .OMAN(MAN)) mul_sides (
                .clk(clk), .en(en), .a(six), .b(c1), .product(sides));
            shift #(.WIDTH(W), .DEPTH(3 * ADD)) hold_c (.clk(clk), .en(en), .d(c), .q(c_later));
            fp_mul #(.EXP(EXP), .MAN(MAN), .OEXP(EXP), .OMAN(MAN)) mul_centre (
                .clk(clk), .en(en), .a(c_later), .b(c0), .product(centre));
            fp_add #(.EXP(EXP), .MAN(MAN)) add_out (
                .clk(clk), .en(en), .a(centre), .b(sides), .sum(out_data[i*W +: W]));
        end
    endgenerate
endmodule
