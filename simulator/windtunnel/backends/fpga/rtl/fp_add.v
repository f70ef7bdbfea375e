// Sum of two IEEE 754 numbers in five register stages, with one result per cycle.
//
// Rounds to nearest, ties to even. Subnormal inputs and outputs, signed zeros and infinities follow the standard.
// Every NaN is the quiet NaN with an empty payload. EXP and MAN are the widths of exponent and fraction:
// 8, 23 is binary32; 5, 10 is binary16; 8, 7 is bfloat16.
module fp_add #(
    parameter EXP = 8,
    parameter MAN = 23
) (
    input  wire             clk,
    input  wire             en,
    input  wire [EXP+MAN:0] a,
    input  wire [EXP+MAN:0] b,
    output reg  [EXP+MAN:0] sum
);
    // The leading bit, the fraction, and guard, round and sticky bits.
    localparam W = MAN + 4;
    localparam [EXP-1:0] TOP = {EXP{1'b1}};
    localparam [EXP-1:0] ONE = {{EXP - 1{1'b0}}, 1'b1};
    localparam [EXP-1:0] FAR = (W < (1 << EXP)) ? W[EXP-1:0] : TOP;

    // Normalise: shift left by 16, 8, 4, 2 and 1 until the leading bit is one, or the exponent is that of subnormals. A
    // shift is skipped if it exceeds either limit.
    function [EXP+W-1:0] normal(input [EXP-1:0] e, input [W-1:0] v);
        integer i;
        reg [EXP-1:0] left;
        reg [W-1:0] bits;
        begin
            left = e;
            bits = v;
            for (i = 4; i >= 0; i = i - 1) begin
                if ((1 << i) < W && (bits >> (W - (1 << i))) == 0 && {{32 - EXP{1'b0}}, left} > (1 << i)) begin
                    bits = bits << (1 << i);
                    left = left - (ONE << i);
                end
            end
            normal = {left, bits};
        end
    endfunction

    // Stage 1: x gets the larger magnitude, y the smaller.
    wire swap = a[EXP+MAN-1:0] < b[EXP+MAN-1:0];
    wire [EXP+MAN:0] x = swap ? b : a;
    wire [EXP+MAN:0] y = swap ? a : b;
    wire [EXP-1:0] ex = x[EXP+MAN-1:MAN];
    wire [EXP-1:0] ey = y[EXP+MAN-1:MAN];
    wire x_nan = ex == TOP && x[MAN-1:0] != 0;
    wire y_nan = ey == TOP && y[MAN-1:0] != 0;
    wire opposed = x[EXP+MAN] ^ y[EXP+MAN];
    wire invalid = x_nan || y_nan || (ex == TOP && ey == TOP && opposed);
    wire [EXP-1:0] px = ex == 0 ? ONE : ex;
    wire [EXP-1:0] py = ey == 0 ? ONE : ey;
    wire [EXP-1:0] apart = px - py;

    reg s1_sign, s1_sub, s1_minus, s1_special, s2_sign, s2_sub, s2_minus, s2_special;
    reg [EXP+MAN:0] s1_value, s2_value, s3_value, s4_value;
    reg [EXP-1:0] s1_e, s1_apart, s2_e, s3_e;
    reg [MAN:0] s1_x, s1_y;

    // Stage 2: y is shifted to x's exponent; the sticky bit records the bits that are lost.
    wire [2*W-1:0] moved = {s1_y, 3'b000, {W{1'b0}}} >> s1_apart;
    reg [W-1:0] s2_x, s2_y;

    // Stage 3: sum or difference, which is never negative.
    wire [W:0] total = s2_sub ? {1'b0, s2_x} - {1'b0, s2_y} : {1'b0, s2_x} + {1'b0, s2_y};
    reg s3_sign, s3_special, s4_sign, s4_special;
    reg [W:0] s3_total;

    // Stage 4: normalisation.
    wire [EXP+W-1:0] shifted = normal(s3_e, s3_total[W-1:0]);
    reg [EXP-1:0] s4_e;
    reg [W-1:0] s4_v;

    // Stage 5: rounding. A fraction that overflows carries into the exponent, which gives the correct encoding.
    wire up = s4_v[2] && (s4_v[1:0] != 0 || s4_v[3]);
    wire [EXP-1:0] field = s4_v[W-1] ? s4_e : {EXP{1'b0}};
    wire [EXP+MAN-1:0] rounded = {field, s4_v[W-2:3]} + {{EXP + MAN - 1{1'b0}}, up};

    always @(posedge clk) begin
        if (en) begin
            s1_sign <= x[EXP+MAN];
            s1_sub <= opposed;
            s1_minus <= a[EXP+MAN] && b[EXP+MAN];
            s1_special <= ex == TOP;
            s1_value <= invalid ? {1'b0, TOP, 1'b1, {MAN - 1{1'b0}}} : x;
            s1_e <= px;
            s1_apart <= apart > FAR ? FAR : apart;
            s1_x <= {ex != 0, x[MAN-1:0]};
            s1_y <= {ey != 0, y[MAN-1:0]};

            s2_sign <= s1_sign;
            s2_sub <= s1_sub;
            s2_minus <= s1_minus;
            s2_special <= s1_special;
            s2_value <= s1_value;
            s2_e <= s1_e;
            s2_x <= {s1_x, 3'b000};
            s2_y <= {moved[2*W-1:W+1], moved[W] || moved[W-1:0] != 0};

            // An exact zero is positive, unless both operands were negative zero.
            s3_sign <= total == 0 ? s2_minus : s2_sign;
            s3_special <= s2_special;
            s3_value <= s2_value;
            s3_e <= s2_e;
            s3_total <= total;

            s4_sign <= s3_sign;
            s4_special <= s3_special;
            s4_value <= s3_value;
            if (s3_total[W]) begin
                s4_e <= s3_e + ONE;
                s4_v <= {s3_total[W:2], s3_total[1] || s3_total[0]};
            end else begin
                s4_e <= shifted[EXP+W-1:W];
                s4_v <= shifted[W-1:0];
            end

            if (s4_special) sum <= s4_value;
            else if (field == TOP) sum <= {s4_sign, TOP, {MAN{1'b0}}};
            else sum <= {s4_sign, rounded};
        end
    end
endmodule
