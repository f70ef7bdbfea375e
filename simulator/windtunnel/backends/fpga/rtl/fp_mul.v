// Product of two IEEE 754 numbers in four register stages, with one result per cycle.
//
// Rounds to nearest, ties to even. Subnormal inputs and outputs, signed zeros and infinities follow the standard. Every
// NaN is the quiet NaN with an empty payload. EXP and MAN are the widths of exponent and fraction of the operands, OEXP
// and OMAN those of the product, which may be wider: the product of two binary16 numbers is exact in binary32.
module fp_mul #(
    parameter EXP = 8,
    parameter MAN = 23,
    parameter OEXP = 8,
    parameter OMAN = 23
) (
    input  wire               clk,
    input  wire               en,
    input  wire [EXP+MAN:0]   a,
    input  wire [EXP+MAN:0]   b,
    output reg  [OEXP+OMAN:0] product
);
    localparam P = 2 * MAN + 2;
    // The width of the product, or of the result with a guard and a sticky bit, whichever is larger.
    localparam Q = P > OMAN + 3 ? P : OMAN + 3;
    localparam [EXP-1:0] TOP = {EXP{1'b1}};
    localparam [OEXP-1:0] OTOP = {OEXP{1'b1}};
    // Exponents of operands and product have a magnitude below 2^10, because no format here has more than 8 exponent
    // bits.
    localparam signed [11:0] BIAS = (1 << (EXP - 1)) - 1;
    localparam signed [11:0] OBIAS = (1 << (OEXP - 1)) - 1;
    localparam signed [11:0] LAST = (1 << OEXP) - 1;
    localparam integer REACH = Q + 1;
    localparam signed [11:0] FAR = REACH[11:0];

    // The unbiased exponent and the normalised significand, also of subnormals.
    function [MAN+12:0] unpacked(input [EXP+MAN-1:0] v);
        integer i;
        reg signed [11:0] e;
        reg [MAN:0] bits;
        begin
            e = $signed({{12 - EXP{1'b0}}, v[EXP+MAN-1:MAN]}) - BIAS;
            bits = {1'b1, v[MAN-1:0]};
            if (v[EXP+MAN-1:MAN] == 0) begin
                e = 12'sd1 - BIAS;
                bits = {1'b0, v[MAN-1:0]};
                for (i = 4; i >= 0; i = i - 1) begin
                    if ((1 << i) <= MAN && (bits >> (MAN + 1 - (1 << i))) == 0) begin
                        bits = bits << (1 << i);
                        e = e - (12'sd1 <<< i);
                    end
                end
            end
            unpacked = {e, bits};
        end
    endfunction

    // Stage 1: normalised operands, and the cases without arithmetic.
    wire sign = a[EXP+MAN] ^ b[EXP+MAN];
    wire a_top = a[EXP+MAN-1:MAN] == TOP;
    wire b_top = b[EXP+MAN-1:MAN] == TOP;
    wire a_zero = a[EXP+MAN-1:0] == 0;
    wire b_zero = b[EXP+MAN-1:0] == 0;
    wire invalid = (a_top && a[MAN-1:0] != 0) || (b_top && b[MAN-1:0] != 0) || (a_top && b_zero) || (b_top && a_zero);
    wire [MAN+12:0] ua = unpacked(a[EXP+MAN-1:0]);
    wire [MAN+12:0] ub = unpacked(b[EXP+MAN-1:0]);
    reg s1_sign, s1_special, s2_sign, s2_special, s3_sign, s3_special;
    reg [OEXP+OMAN:0] s1_value, s2_value, s3_value;
    reg signed [11:0] s1_e, s2_e;
    reg [MAN:0] s1_a, s1_b;

    // Stage 2: the product of the significands, in the range 1 to 4.
    reg [P-1:0] s2_p;

    // Stage 3: normalised to the range 1 to 2, or shifted right if the exponent is below that of normal numbers.
    wire [P-1:0] fronted = s2_p[P-1] ? s2_p : s2_p << 1;
    wire signed [11:0] biased = s2_e + (s2_p[P-1] ? 12'sd1 : 12'sd0) + OBIAS;
    wire signed [11:0] lacking = 12'sd1 - biased;
    wire [10:0] below = lacking < 12'sd1 ? 11'd0 : lacking > FAR ? FAR[10:0] : lacking[10:0];
    wire [2*Q-1:0] moved = {fronted, {2 * Q - P{1'b0}}} >> below;
    reg [OMAN-1:0] s3_m;
    reg s3_guard, s3_sticky, s3_over;
    reg [OEXP-1:0] s3_field;

    // Stage 4: rounding. A fraction that overflows carries into the exponent, which gives the correct encoding.
    wire up = s3_guard && (s3_sticky || s3_m[0]);
    wire [OEXP+OMAN-1:0] rounded = {s3_field, s3_m} + {{OEXP + OMAN - 1{1'b0}}, up};

    always @(posedge clk) begin
        if (en) begin
            s1_sign <= sign;
            s1_special <= a_top || b_top || a_zero || b_zero;
            if (invalid) s1_value <= {1'b0, OTOP, 1'b1, {OMAN - 1{1'b0}}};
            else if (a_top || b_top) s1_value <= {sign, OTOP, {OMAN{1'b0}}};
            else s1_value <= {sign, {OEXP + OMAN{1'b0}}};
            s1_e <= $signed(ua[MAN+12:MAN+1]) + $signed(ub[MAN+12:MAN+1]);
            s1_a <= ua[MAN:0];
            s1_b <= ub[MAN:0];

            s2_sign <= s1_sign;
            s2_special <= s1_special;
            s2_value <= s1_value;
            s2_e <= s1_e;
            s2_p <= {{MAN + 1{1'b0}}, s1_a} * {{MAN + 1{1'b0}}, s1_b};

            s3_sign <= s2_sign;
            s3_special <= s2_special;
            s3_value <= s2_value;
            s3_m <= moved[2*Q-2:2*Q-1-OMAN];
            s3_guard <= moved[2*Q-2-OMAN];
            s3_sticky <= moved[2*Q-3-OMAN:0] != 0;
            s3_over <= biased >= LAST;
            s3_field <= moved[2*Q-1] ? biased[OEXP-1:0] : {OEXP{1'b0}};

            if (s3_special) product <= s3_value;
            else if (s3_over) product <= {s3_sign, OTOP, {OMAN{1'b0}}};
            else product <= {s3_sign, rounded};
        end
    end
endmodule
