// C = A B on a weight-stationary systolic array of ROWS x COLUMNS multiply-adds, for integers or floating point.
//
// The cells hold a tile of B (ROWS of k, COLUMNS of n). Rows of A move right through it and sums move down, so that a
// pipelined adder starts a new sum in each cycle: row r processes what was accepted r * ADD cycles ago. A memory below
// the array holds the sums over the tiles of k, with one word for each element of C.
//
// An input word holds ROWS elements of a row of A (low bits), COLUMNS elements of a row of B, and in its top byte:
//     bit 0  load: a row of the next tile of B, in order
//     bit 1  act: a row of A
//     bit 2  first: the loaded tile is used from this row of A on
//     bit 3  begin: the sums begin here (first tile of k)
//     bit 4  final: the sums end here and are output (last tile of k)
// With several tiles of k, each needs at least ADD + 2 rows of A; otherwise sums would be read before they are written.
//
// OVERLAP 0: a load waits until the array is empty: ROWS + m + ROWS * ADD + MUL + COLUMNS - 2 cycles per tile, which is
// SCALE-Sim's 2 ROWS + COLUMNS + m - 2 if a sum takes one cycle. OVERLAP 1: a row of weights is loaded into the second
// registers of the cells as soon as its whole row uses the previous weights: m cycles per tile, if m is at least
// ROWS + (ROWS - 1) * (ADD - 1), which is ROWS if a sum takes one cycle.
module gemm_ws #(
    parameter ROWS = 4,
    parameter COLUMNS = 4,
    parameter FLOAT = 1,
    parameter EXP = 8,
    parameter MAN = 23,
    parameter OVERLAP = 1,
    parameter DEPTH = 1024,  // maximum number of rows of A in a pass
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
    // Cycles from a row of A to its sums, and until its last element is in the array.
    localparam integer THROUGH = ROWS * ADD + MUL + COLUMNS - 1;
    localparam integer SKEW = (ROWS - 1) * ADD;
    localparam integer STEP = ADD;
    localparam [15:0] LEAVES = THROUGH[15:0] - 16'd1;
    localparam ADDRESS = DEPTH < 2 ? 1 : $clog2(DEPTH);
    localparam [ADDRESS-1:0] ONE = 1;
    localparam [ROWS-1:0] TOP_ROW = 1;

    /* verilator lint_off UNUSEDSIGNAL */
    wire [7:0] flags = in_data[(ROWS+COLUMNS)*W +: 8];
    /* verilator lint_on UNUSEDSIGNAL */
    wire load = flags[0], act = flags[1], first = flags[2], from_zero = flags[3], final_one = flags[4];

    // `since`: cycles since the present tile began. Row r of the array uses it r * ADD cycles later, and can then be
    // loaded again. Loads have the same delay in each column as rows of A.
    reg [15:0] leaving, since, due;
    reg [ROWS-1:0] turn;
    wire [15:0] now = act && first ? 16'd0 : since;
    wire clear = !load || (OVERLAP != 0 ? now >= due : leaving == 0);
    wire en = !out_valid || out_ready;
    assign in_ready = en && clear;
    wire go = in_valid && clear;

    always @(posedge clk) begin
        if (rst) begin
            leaving <= 16'd0;
            since <= SKEW[15:0];
            due <= 16'd0;
            turn <= TOP_ROW;
        end else if (en) begin
            if (go && act) leaving <= LEAVES;
            else if (leaving != 0) leaving <= leaving - 16'd1;
            if (go && act && first) since <= SKEW == 0 ? 16'd0 : 16'd1;
            else if (since != SKEW[15:0]) since <= since + 16'd1;
            if (go && load) begin
                turn <= (turn << 1) | (turn >> (ROWS - 1));
                due <= turn[ROWS-1] ? 16'd0 : due + STEP[15:0];
            end
        end
    end

    // Values that leave the array at its far edges are discarded.
    /* verilator lint_off UNUSEDSIGNAL */
    wire [W+1:0] right [0:ROWS*(COLUMNS+1)-1];
    /* verilator lint_on UNUSEDSIGNAL */
    wire [W-1:0] weights [0:COLUMNS-1];
    wire [31:0] sums [0:(ROWS+1)*COLUMNS-1];

    wire [COLUMNS*32-1:0] row;
    genvar r, c;
    generate
        for (r = 0; r < ROWS; r = r + 1) begin : g_row
            wire [W:0] late;
            shift #(.WIDTH(W + 1), .DEPTH(r * ADD)) skew (
                .clk(clk), .en(en), .d({go && act && first, in_data[r*W +: W]}), .q(late));
            assign right[r*(COLUMNS+1)] = {go && load && turn[r], late};
            for (c = 0; c < COLUMNS; c = c + 1) begin : g_cell
                gemm_ws_cell #(.FLOAT(FLOAT), .EXP(EXP), .MAN(MAN)) one (
                    .clk(clk), .en(en), .weight_in(weights[c]),
                    .from_left(right[r*(COLUMNS+1)+c]), .to_right(right[r*(COLUMNS+1)+c+1]),
                    .sum_in(sums[r*COLUMNS+c]), .sum_out(sums[(r+1)*COLUMNS+c]));
            end
        end
        for (c = 0; c < COLUMNS; c = c + 1) begin : g_align
            shift #(.WIDTH(W), .DEPTH(c)) skew (
                .clk(clk), .en(en), .d(in_data[(ROWS+c)*W +: W]), .q(weights[c]));
            assign sums[c] = 32'd0;
            shift #(.WIDTH(32), .DEPTH(COLUMNS - 1 - c)) align (
                .clk(clk), .en(en), .d(sums[ROWS*COLUMNS+c]), .q(row[c*32 +: 32]));
        end
    endgenerate

    // Below the array: a row of sums is added to its stored value. Only `valid` needs a reset.
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
    reg [COLUMNS*32-1:0] sum, so_far;
    reg [ADDRESS-1:0] next;
    reg [ADDRESS-1:0] at;
    wire [ADDRESS-1:0] read = row_first ? {ADDRESS{1'b0}} : next;
    reg [ADD:0] full, ends;
    wire [ADDRESS-1:0] write;

    always @(posedge clk) begin
        if (en) begin
            sum <= row;
            so_far <= row_begins ? {COLUMNS * 32{1'b0}} : kept[read];
            at <= read;
            if (row_valid) next <= read + ONE;
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
                .clk(clk), .en(en), .a(so_far[c*32 +: 32]), .b(sum[c*32 +: 32]), .sum(out_data[c*32 +: 32]));
        end
    endgenerate
    assign out_valid = ends[ADD];
endmodule

// The present weight, the next weight, and a multiply-add.
module gemm_ws_cell #(
    parameter FLOAT = 1,
    parameter EXP = 8,
    parameter MAN = 23,
    parameter W = 1 + EXP + MAN
) (
    input  wire         clk,
    input  wire         en,
    input  wire [W-1:0] weight_in,
    input  wire [W+1:0] from_left,  // whether to load, whether to use the loaded weight, and an element of A
    output reg  [W+1:0] to_right,
    input  wire [31:0]  sum_in,
    output wire [31:0]  sum_out
);
    reg [W-1:0] used, loaded;
    wire [W-1:0] weight = from_left[W] ? loaded : used;
    wire [31:0] product;

    always @(posedge clk) begin
        if (en) begin
            to_right <= from_left;
            used <= weight;
            if (from_left[W+1]) loaded <= weight_in;
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

// A 32-bit sum: binary32 in five stages, or an integer in one.
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
