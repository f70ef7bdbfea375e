// C = A B on an output-stationary systolic array of ROWS x COLUMNS integer multiply-adds.
//
// An input word belongs to one k: ROWS elements of a column of A (low bits), COLUMNS elements of a row of B, and in the
// top byte whether it is the last word of its tile. A moves right and B moves down, one cell per cycle. Each cell sums
// one element of C. A tile of C is output row by row, as the wave of last words passes.
//
// OVERLAP 0: a tile begins when the previous one has left the array, as in the formula of SCALE-Sim: a tile takes
// ROWS + COLUMNS + k - 2 cycles. OVERLAP 1: a tile follows immediately and takes k cycles, or ROWS cycles if that is
// more, so that the rows of two tiles do not collide in a column.
module gemm_os #(
    parameter ROWS = 16,
    parameter COLUMNS = 16,
    parameter WIDTH = 8,
    parameter SUM = 32,
    parameter OVERLAP = 1
) (
    input  wire                              clk,
    input  wire                              rst,
    input  wire                              in_valid,
    output wire                              in_ready,
    input  wire [8+(ROWS+COLUMNS)*WIDTH-1:0] in_data,
    output wire                              out_valid,
    input  wire                              out_ready,
    output wire [COLUMNS*SUM-1:0]            out_data
);
    localparam integer ACROSS = ROWS + COLUMNS - 2;
    localparam integer DOWN = ROWS;
    localparam [15:0] LEAVES = ACROSS[15:0];
    localparam [15:0] SPREAD = DOWN[15:0];

    // Only the last word of a tile waits, or makes the next tile wait.
    wire last = in_data[(ROWS+COLUMNS)*WIDTH];
    reg [15:0] leaving, since;
    wire clear = OVERLAP != 0 ? !last || since >= SPREAD : leaving == 0;
    wire en = !out_valid || out_ready;
    assign in_ready = en && clear;
    wire go = in_valid && clear;

    always @(posedge clk) begin
        if (rst) begin
            leaving <= 16'd0;
            since <= SPREAD;
        end else if (en) begin
            if (go && last) leaving <= LEAVES;
            else if (leaving != 0) leaving <= leaving - 16'd1;
            if (go && last) since <= 16'd1;
            else if (since < SPREAD) since <= since + 16'd1;
        end
    end

    // Cell (r, c) processes a word r + c cycles after it was accepted. A row gets its element and tokens with that
    // delay and passes them to the right. A cell without a word adds nothing. In each column at most one cell ends its
    // sum in a cycle, row after row, and passes it down at once. Values that leave the array at its far edges are
    // discarded.
    reg [ROWS-1:0] went, was_last;
    /* verilator lint_off UNUSEDSIGNAL */
    wire [WIDTH+1:0] right [0:ROWS*(COLUMNS+1)-1];
    wire [WIDTH-1:0] down [0:(ROWS+1)*COLUMNS-1];
    wire [ROWS:0] goes = {went, go};
    wire [ROWS:0] lasts = {was_last, go && last};
    /* verilator lint_on UNUSEDSIGNAL */
    always @(posedge clk) begin
        if (rst) {went, was_last} <= {2 * ROWS{1'b0}};
        else if (en) {went, was_last} <= {goes[ROWS-1:0], lasts[ROWS-1:0]};
    end
    wire [SUM:0] ended [0:(ROWS+1)*COLUMNS-1];

    genvar r, c;
    generate
        for (r = 0; r < ROWS; r = r + 1) begin : g_skew_a
            wire [WIDTH-1:0] late;
            shift #(.WIDTH(WIDTH), .DEPTH(r)) skew (.clk(clk), .en(en), .d(in_data[r*WIDTH +: WIDTH]), .q(late));
            assign right[r*(COLUMNS+1)] = {goes[r], lasts[r], late};
        end
        for (c = 0; c < COLUMNS; c = c + 1) begin : g_skew_b
            assign ended[c] = {SUM + 1{1'b0}};
            shift #(.WIDTH(WIDTH), .DEPTH(c)) skew (
                .clk(clk), .en(en), .d(in_data[(ROWS+c)*WIDTH +: WIDTH]), .q(down[c]));
        end
        for (r = 0; r < ROWS; r = r + 1) begin : g_row
            for (c = 0; c < COLUMNS; c = c + 1) begin : g_cell
                gemm_os_cell #(.WIDTH(WIDTH), .SUM(SUM)) one (
                    .clk(clk), .rst(rst), .en(en),
                    .from_left(right[r*(COLUMNS+1)+c]), .to_right(right[r*(COLUMNS+1)+c+1]),
                    .from_above(down[r*COLUMNS+c]), .to_below(down[(r+1)*COLUMNS+c]),
                    .ended_above(ended[r*COLUMNS+c]), .ended(ended[(r+1)*COLUMNS+c]));
            end
        end

        // Each column is one cycle later than the one before. This is compensated here, so that a row of the tile is
        // one word. The last column is the latest and determines when a row is complete.
        for (c = 0; c < COLUMNS; c = c + 1) begin : g_out
            shift #(.WIDTH(SUM), .DEPTH(COLUMNS - c)) align (
                .clk(clk), .en(en), .d(ended[ROWS*COLUMNS+c][SUM-1:0]), .q(out_data[c*SUM +: SUM]));
        end
    endgenerate

    reg full;
    assign out_valid = full;
    always @(posedge clk) begin
        if (rst) full <= 1'b0;
        else if (en) full <= ended[ROWS*COLUMNS+COLUMNS-1][SUM];
    end
endmodule

// One multiply-add and its sum, which restarts after the last word of a tile.
module gemm_os_cell #(
    parameter WIDTH = 8,
    parameter SUM = 32
) (
    input  wire             clk,
    input  wire             rst,
    input  wire             en,
    input  wire [WIDTH+1:0] from_left,
    output reg  [WIDTH+1:0] to_right,
    input  wire [WIDTH-1:0] from_above,
    output reg  [WIDTH-1:0] to_below,
    input  wire [SUM:0]     ended_above,
    output wire [SUM:0]     ended  // whether the sum of this cell or of one above ends, and its value
);
    wire valid = from_left[WIDTH+1];
    wire signed [2*WIDTH-1:0] product = $signed(from_left[WIDTH-1:0]) * $signed(from_above);
    reg [SUM-1:0] kept;

    wire [SUM-1:0] sum = kept + {{SUM - 2 * WIDTH{product[2*WIDTH-1]}}, product};
    wire ends = valid && from_left[WIDTH];
    assign ended = ends ? {1'b1, sum} : ended_above;

    always @(posedge clk) begin
        if (rst) begin
            kept <= {SUM{1'b0}};
            to_right <= {WIDTH + 2{1'b0}};
        end else if (en) begin
            if (valid) kept <= ends ? {SUM{1'b0}} : sum;
            to_right <= from_left;
        end
    end
    always @(posedge clk) if (en) to_below <= from_above;
endmodule
