// C = A B on a weight-stationary systolic array of ROWS x COLUMNS multiply-adds, in integers or in floating point.
//
// A tile of B (ROWS of k, COLUMNS of n) stands in the cells. Rows of A flow through it to the right and sums flow down,
// so that an adder of several stages starts a new sum each cycle: row r works on what was taken r * ADD cycles ago.
// Sums over the tiles of k are kept below the array, an element of C in a word of memory each.
//
// A word in holds ROWS elements of a row of A (low), COLUMNS elements of a row of B, and in its top byte:
//     bit 0  load: a row of the next tile of B; the last row of a tile comes first
//     bit 1  act: a row of A
//     bit 2  first: from this row of A on the tile that was loaded is used
//     bit 3  begin: the sums begin here (first tile of k)
//     bit 4  final: the sums end here and go out (last tile of k)
// A product of several tiles of k has ADD + 2 rows of A at least in each, or sums would be read before they are written.
//
// OVERLAP 0: a load waits until the array is empty: ROWS + m + ROWS * ADD + MUL + COLUMNS - 2 cycles a tile, which is
// SCALE-Sim's 2 ROWS + COLUMNS + m - 2 where sums take a cycle. OVERLAP 1: weights have a second register in each cell,
// and a load waits until the tile before is in use everywhere: m cycles a tile, if m is no less than
// ROWS + (ROWS - 1) * ADD + COLUMNS - 1.
module gemm_ws #(
    parameter ROWS = 4,
    parameter COLUMNS = 4,
    parameter FLOAT = 1,
    parameter EXP = 8,
    parameter MAN = 23,
    parameter OVERLAP = 1,
    parameter DEPTH = 1024,  // rows of A that a pass may have
    parameter W = 1 + EXP + MAN
) (
    input  wire                          clk,
    input  wire                          rst,
    input  wire                          in_valid,
    output wire                          in_ready,
    input  wire [8+(ROWS+COLUMNS)*W-1:0] in_data,
    output wire                          out_valid,
    input  wire                          out_ready,
    output wire [COLUMNS*32-1:0]         out_data
);
    localparam ADD = FLOAT != 0 ? 5 : 1;
    localparam MUL = FLOAT != 0 ? 4 : 0;
    localparam [15:0] LEAVES = ROWS * ADD + MUL + COLUMNS - 2;
    localparam [15:0] REACHES = (ROWS - 1) * ADD + COLUMNS - 1;
    localparam THROUGH = ROWS * ADD + MUL + COLUMNS - 1;
    localparam ADDRESS = DEPTH < 2 ? 1 : $clog2(DEPTH);

    /* verilator lint_off UNUSEDSIGNAL */
    wire [7:0] flags = in_data[(ROWS+COLUMNS)*W +: 8];
    /* verilator lint_on UNUSEDSIGNAL */
    wire load = flags[0], act = flags[1], first = flags[2], from_zero = flags[3], final_one = flags[4];

    reg [15:0] leaving, reaching;
    wire clear = !load || (OVERLAP != 0 ? reaching == 0 : leaving == 0);
    wire en = !out_valid || out_ready;
    assign in_ready = en && clear;
    wire go = in_valid && clear;

    always @(posedge clk) begin
        if (rst) begin
            leaving <= 16'd0;
            reaching <= 16'd0;
        end else if (en) begin
            if (go && act) leaving <= LEAVES;
            else if (leaving != 0) leaving <= leaving - 16'd1;
            if (go && act && first) reaching <= REACHES == 0 ? 16'd0 : REACHES - 16'd1;
            else if (reaching != 0) reaching <= reaching - 16'd1;
        end
    end

    // What leaves the array at its far edges goes nowhere.
    /* verilator lint_off UNUSEDSIGNAL */
    wire [ROWS*(COLUMNS+1)*(W+1)-1:0] right;
    wire [(ROWS+1)*COLUMNS*W-1:0] weights;
    /* verilator lint_on UNUSEDSIGNAL */
    wire [(ROWS+1)*COLUMNS*32-1:0] sums;
    assign weights[COLUMNS*W-1:0] = in_data[ROWS*W +: COLUMNS*W];
    assign sums[COLUMNS*32-1:0] = {COLUMNS * 32{1'b0}};

    wire [COLUMNS*32-1:0] row;
    genvar r, c;
    generate
        for (r = 0; r < ROWS; r = r + 1) begin : g_row
            shift #(.WIDTH(W + 1), .DEPTH(r * ADD)) skew (
                .clk(clk), .en(en), .d({go && act && first, in_data[r*W +: W]}), .q(right[r*(COLUMNS+1)*(W+1) +: W+1]));
            for (c = 0; c < COLUMNS; c = c + 1) begin : g_cell
                gemm_ws_cell #(.FLOAT(FLOAT), .EXP(EXP), .MAN(MAN)) one (
                    .clk(clk), .en(en), .load(go && load),
                    .from_left(right[(r*(COLUMNS+1)+c)*(W+1) +: W+1]),
                    .to_right(right[(r*(COLUMNS+1)+c+1)*(W+1) +: W+1]),
                    .weight_in(weights[(r*COLUMNS+c)*W +: W]), .weight_out(weights[((r+1)*COLUMNS+c)*W +: W]),
                    .sum_in(sums[(r*COLUMNS+c)*32 +: 32]), .sum_out(sums[((r+1)*COLUMNS+c)*32 +: 32]));
            end
        end
        for (c = 0; c < COLUMNS; c = c + 1) begin : g_align
            shift #(.WIDTH(32), .DEPTH(COLUMNS - 1 - c)) align (
                .clk(clk), .en(en), .d(sums[(ROWS*COLUMNS+c)*32 +: 32]), .q(row[c*32 +: 32]));
        end
    endgenerate

    // Below the array: a row of sums with what was kept of it so far. `valid` has its own reset; the rest need none.
    wire row_first, row_begins, row_ends;
    reg [THROUGH-1:0] through;
    wire row_valid = through[THROUGH-1];
    generate
        if (THROUGH == 1) begin : g_short
            always @(posedge clk) if (rst) through <= 1'b0; else if (en) through <= go && act;
        end else begin : g_long
            always @(posedge clk) begin
                if (rst) through <= {THROUGH{1'b0}};
                else if (en) through <= {through[THROUGH-2:0], go && act};
            end
        end
    endgenerate
    shift #(.WIDTH(3), .DEPTH(THROUGH)) tokens (
        .clk(clk), .en(en), .d({first, from_zero, final_one}), .q({row_first, row_begins, row_ends}));

    reg [COLUMNS*32-1:0] kept [0:DEPTH-1];
    reg [COLUMNS*32-1:0] sum, before;
    reg [ADDRESS-1:0] next;
    reg [ADDRESS-1:0] at;
    wire [ADDRESS-1:0] read = row_first ? {ADDRESS{1'b0}} : next;
    reg [ADD:0] full, ends;
    wire [ADDRESS-1:0] write;

    always @(posedge clk) begin
        if (en) begin
            sum <= row;
            before <= row_begins ? {COLUMNS * 32{1'b0}} : kept[read];
            at <= read;
            if (row_valid) next <= read + {{ADDRESS - 1{1'b0}}, 1'b1};
            if (full[ADD]) kept[write] <= out_data;
        end
    end
    always @(posedge clk) begin
        if (rst) begin
            full <= {ADD + 1{1'b0}};
            ends <= {ADD + 1{1'b0}};
        end else if (en) begin
            full <= {full[ADD-1:0], row_valid};
            ends <= {ends[ADD-1:0], row_valid && row_ends};
        end
    end
    shift #(.WIDTH(ADDRESS), .DEPTH(ADD)) where (.clk(clk), .en(en), .d(at), .q(write));
    generate
        for (c = 0; c < COLUMNS; c = c + 1) begin : g_sum
            gemm_ws_sum #(.FLOAT(FLOAT)) adder (
                .clk(clk), .en(en), .a(before[c*32 +: 32]), .b(sum[c*32 +: 32]), .sum(out_data[c*32 +: 32]));
        end
    endgenerate
    assign out_valid = ends[ADD];
endmodule

// A weight, the next one, and a multiply-add.
module gemm_ws_cell #(
    parameter FLOAT = 1,
    parameter EXP = 8,
    parameter MAN = 23,
    parameter W = 1 + EXP + MAN
) (
    input  wire         clk,
    input  wire         en,
    input  wire         load,
    input  wire [W:0]   from_left,
    output reg  [W:0]   to_right,
    input  wire [W-1:0] weight_in,
    output reg  [W-1:0] weight_out,
    input  wire [31:0]  sum_in,
    output wire [31:0]  sum_out
);
    reg [W-1:0] used;
    wire [W-1:0] weight = from_left[W] ? weight_out : used;
    wire [31:0] product;

    always @(posedge clk) begin
        if (en) begin
            to_right <= from_left;
            used <= weight;
            if (load) weight_out <= weight_in;
        end
    end
    generate
        if (FLOAT != 0) begin : g_float
            fp_mul #(.EXP(EXP), .MAN(MAN), .OEXP(8), .OMAN(23)) multiplier (
                .clk(clk), .en(en), .a(from_left[W-1:0]), .b(weight), .product(product));
        end else begin : g_integer
            wire signed [2*W-1:0] exact = $signed(from_left[W-1:0]) * $signed(weight);
            assign product = {{32 - 2 * W{exact[2*W-1]}}, exact};
        end
    endgenerate
    gemm_ws_sum #(.FLOAT(FLOAT)) adder (.clk(clk), .en(en), .a(sum_in), .b(product), .sum(sum_out));
endmodule

// A sum of 32 bits: binary32 in five stages, or an integer in one.
module gemm_ws_sum #(
    parameter FLOAT = 1
) (
    input  wire        clk,
    input  wire        en,
    input  wire [31:0] a,
    input  wire [31:0] b,
    output wire [31:0] sum
);
    generate
        if (FLOAT != 0) begin : g_float
            fp_add #(.EXP(8), .MAN(23)) adder (.clk(clk), .en(en), .a(a), .b(b), .sum(sum));
        end else begin : g_integer
            reg [31:0] held;
            always @(posedge clk) if (en) held <= a + b;
            assign sum = held;
        end
    endgenerate
endmodule
