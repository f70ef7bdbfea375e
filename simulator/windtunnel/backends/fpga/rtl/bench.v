// Test bench, for simulation only: reads the input of a design from a file, writes its output to another, and counts
// cycles.
//
// The module `under_test` is generated beside this file: the design under test with its parameters. The words of in.hex
// are sent +runs times; each run starts when the last word of the one before is out. +in_percent and +out_percent: the
// percentage of cycles in which the source offers a word, and in which the sink accepts one. +seed: the seed of these
// random choices. +max_cycles: the limit after which the simulation stops.
//
// out.txt has a line for each output word, with its cycle and its bits; a line for each run, with the cycles of its
// first and last input word and of its first and last output word; and `done`.
`timescale 1ns / 1ps
module bench;
    parameter IN_WIDTH = 8;
    parameter OUT_WIDTH = 8;
    parameter IN_WORDS = 1;
    parameter OUT_WORDS = 1;

    reg clk = 0;
    reg rst = 1;
    reg [IN_WIDTH-1:0] words [0:IN_WORDS-1];
    integer cycle = 0, given = 0, taken = 0, done = 0, results;
    integer runs = 1, max_cycles = 1000, in_percent = 100, out_percent = 100, seed = 1;
    integer first_in, last_in, first_out;
    reg offer = 1, take = 1;

    wire in_ready, out_valid;
    wire in_valid = !rst && offer && given < IN_WORDS;
    wire out_ready = take;
    wire [IN_WIDTH-1:0] in_data = words[given < IN_WORDS ? given : 0];
    wire [OUT_WIDTH-1:0] out_data;

    under_test dut (
        .clk(clk), .rst(rst),
        .in_valid(in_valid), .in_ready(in_ready), .in_data(in_data),
        .out_valid(out_valid), .out_ready(out_ready), .out_data(out_data)
    );

    always #1 clk = !clk;

    initial begin
        if ($value$plusargs("in_percent=%d", in_percent)) begin end
        if ($value$plusargs("out_percent=%d", out_percent)) begin end
        if ($value$plusargs("seed=%d", seed)) begin end
        if ($value$plusargs("runs=%d", runs)) begin end
        if ($value$plusargs("max_cycles=%d", max_cycles)) begin end
        $readmemh("in.hex", words);
        results = $fopen("out.txt", "w");
        repeat (4) @(posedge clk);
        rst <= 0;
    end

    // The values of valid and ready before the edge decide; registers are assigned afterwards.
    always @(posedge clk) if (!rst) begin
        cycle <= cycle + 1;
        if (out_percent < 100) take <= ($urandom(seed) % 100) < out_percent;
        // An offered word stays until it is accepted.
        if (in_percent < 100 && (in_ready || !offer)) offer <= ($urandom(seed) % 100) < in_percent;
        if (in_valid && in_ready) begin
            if (given == 0) first_in <= cycle;
            last_in <= cycle;
            given <= given + 1;
        end
        if (out_valid && out_ready) begin
            $fdisplay(results, "%0d %h", cycle, out_data);
            if (taken == 0) first_out <= cycle;
            taken <= taken + 1;
            if (taken == OUT_WORDS - 1) begin
                // In this cycle a run of one word has its first and its last word at once.
                $fdisplay(results, "run %0d %0d %0d %0d", first_in, last_in, taken == 0 ? cycle : first_out, cycle);
                taken <= 0;
                given <= 0;
                done <= done + 1;
                if (given != IN_WORDS) begin
                    $fdisplay(results, "early %0d", given);
                    $finish;
                end
                if (done == runs - 1) begin
                    $fdisplay(results, "done");
                    $finish;
                end
            end
        end
        if (cycle == max_cycles) begin
            $fdisplay(results, "late %0d of %0d in, %0d of %0d out", given, IN_WORDS, taken, OUT_WORDS);
            $finish;
        end
    end
endmodule
