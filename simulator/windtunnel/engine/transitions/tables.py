"""The state of a run: a few tables of records, and one record for the run.

The compiled engine holds each table as an array of records, the process engine as a list of objects with the same
fields. The tables hold the whole state, so an engine can stop (for larger tables, or to answer a question) and
continue. Memory is proportional to the numbers of devices and of jobs present, except for the times of the jobs. There
are few tables because Numba's compile time grows with the number of arguments of each function.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from windtunnel.engine.prepare.fault_schedule import EVENT

Records = Any
"""A table of records, or one record, whose fields are read by name."""


def _layout(integers: str, floats: str = "") -> np.dtype:
    """Return a record of 8-byte integers and floats, in order; ``name:4`` is a 4-byte integer, ``name:f`` a float.

    Small records make large fleets faster.
    """
    fields = [name.partition(":") for name in integers.split()]
    names = [(name, "f8" if size == "f" else f"i{size or 8}") for name, _, size in fields]
    return np.dtype(names + [(name, "f8") for name in floats.split()], align=True)


RUN = _layout(
    # Progress. `stale`: 1 + the device of the heap's first entry, which was processed. `last`: no block of arrivals
    # follows. `faults_until`: the tick before which all faults are known. `unassigned`, `placing`: first and last slots
    # of the jobs that no available device accepts, and of those to be assigned next. `too_long`: work would end after
    # the last tick. `closing`: the run is over.
    "now end heap timer_count stale free next job arrived last turn fault faults_until written too_long closing "
    "unassigned unassigned_end placing placing_end waiting running completed failed dropped pausing last_finish "
    # `pausing`: the number of jobs that pause before their next attempt.
    # `last_finish`: the last tick at which a job ended, was interrupted, or found no device to decode it. `gone`: the
    # next tick when a device fails permanently; `ended`: 1 + the number of ended jobs at the last check whether waiting
    # jobs can be served.
    "gone ended returned "
    # What precedes the next event. `feeding`: a device that may start work; `sweeping`: the position in the list of
    # classes whose idle devices are offered work, up to `sweep_end`; `draining`: whether power may have become
    # available; `asking`: the question that must be answered in Python first (see `questions`).
    "feeding sweeping sweep_end draining tried refused line_first line_count paused asking "
    # The subject of a question: a device, a queue and a number of jobs; and the answer: ticks, first token (watts).
    "subject asked_queue asked_size answer_ticks answer_first answered "
    # For runs that keep only sums: jobs in a batch, the stride of the kept jobs, and the present bin of time.
    "tallying batch_width stride last_arrival span span_width span_until spans_end hour hour_until "
    # For continuous batching: the number of recorded gaps between tokens, and of preemptions. For autoscaling: the
    # number of recorded changes. For faults of operations: the completed jobs with corrupted data.
    "gaps preemptions changes corrupted "
    # For closed loops: the number of submissions in their heap, the largest number of think times of a user so far, and
    # 1 + the workload that has more jobs than random numbers were drawn for.
    "submits thoughts exceeded "
    # For prefix caches: which kind (a constant), the number of nodes in use, the first free one, and whether all must
    # be indexed again. Constants: the levels of caches, of which the first is that of the devices, and how many of
    # them a device loses when it fails; the tokens of a block; the most nodes that a request may need; the offsets in
    # `ints` of the blocks and tokens of the runs.
    "caching nodes free_node reindexing levels lost_levels block_tokens longest_chain run_blocks run_tokens "
    # For requests that move from a device that reads prompts to one that decodes. Whether there are any (a constant);
    # handing, handing_end: first and last slots of those that a device is to be chosen for next; stranded,
    # stranded_end, strandeds: of those that no available device accepts, and their number; freed: the first device
    # that may start work because memory became free; transfers: how many are recorded. Offsets in `ints`: of the first
    # class that decodes the jobs of signature s (from decode_at + s), and of these classes.
    "disaggregated handing handing_end stranded stranded_end strandeds freed transfers decode_at decode_classes "
    # For adapters: whether any are used, how many a device has places for, and the number of the last use.
    "adapting adapter_places adapter_turn "
    # For streams: the first free task.
    "free_task "
    # For gangs: whether some jobs occupy several devices, and whether later jobs may start while one waits.
    "ganging backfill "
    # Constants. `careful`: a device's work may be interrupted, slowed, paused or batched. `looks`: the score reads more
    # of a device than the tree holds. `far`: the fleet is larger than the cache. `serving`: batches are continuous.
    # `continues`: the run does not end when it has drained, because devices are still scaled.
    "routed by keyed batch batch_size batch_wait serving gated scaling workloads devices classes draws "
    "stretched careful looks far write tokens continues users engines "
    # The number of jobs after which no more arrive; whether jobs may give up waiting or pause.
    "limit waits "
    # The number of waiting jobs that will leave unless they start.
    "impatient "
    # For checkpoints and preemption: whether the progress of jobs is noted, how jobs are preempted (a constant), and
    # whether a waiting job may preempt another.
    "progresses preempting contested "
    # For designs: whether devices may have to load any, and the word of the first load.
    "reconfigures load_word "
    # Queues of each owner, a device or a signature: one, or one for each workload (request-level batches) or flow
    # (`fair`: fair queueing). `outranks`: requests preempt those of a continuous batch that come after them.
    "lines fair outranks "
    # Offsets in `ints` of: the classes of signature s (from signature_at + s), the queues that class c serves (from
    # queue_at + c) and all classes.
    "signature_at signature_classes queue_at queues_of all_classes",
    "drawn_w cap_w drawing_w idle_w peak_w answer_w",
)
DEVICE = _layout(
    # One cache line. slot: the job in progress, the first of a batch; -1 if idle (a server: 0 during a step). since:
    # the tick from which its present work is accounted for. outages: for how many reasons it is down; linked: 0 while
    # it is unreachable; enlisted: whether it is in service. held: its job has ended and cannot be delivered. paused:
    # its work waits for power; in_line: its next work does. energy: above idle (J).
    "slot:4 present:4 segment:4 last:4 count:4 done:4 cls:2 outages:1 enlisted:1 linked:1 held:1 paused:1 in_line:1 "
    "since busy ready energy:f "
    # Another cache line, which only careful runs access (turn: only routes by turn). left: the remaining ticks of the
    # work after `since`, at full speed. rate: its speed, 1.0 unless throttled. full, watts: above idle, at full speed
    # and now. need: what the power budget reserves for it. first_left: the ticks that remain of its job when this
    # produces its first token, or -1.
    "turn left began watts:f rate:f full:f need:f first_left"
)
# The part of a device that only faults of operations, autoscaling and designs need.
# ending: how it ends (an index of the scenario's faults, -1 if normally); timed: its time does not depend on the
# device's speed; corrupted: so are its data. failing: with streams, the job whose operation failed. state: of a scaled
# device; request: the number of its last request; running: its jobs in progress. loading: 1 + the design that it loads,
# or 0; a batch that waits for that takes `then` ticks and draws `then_w`.
EXTRA = _layout("ending:4 running:4 failing timed:1 corrupted:1 state:1 loading:4 request then", "then_w")
SLOT = _layout(
    # One cache line. With stragglers, a job's slowdown follows its draws.
    "job arrival start rank:4 signature:4 next:4 child:4 work:2 starts:2 timed:1",
    "key energy",
)
ENTRY = _layout("tick which")
NODE = _layout("load winner")
QUEUE = _layout("head:4 tail:4 number:4")
# tree: the root of its tree, or with a central queue of its index of idle devices; leaf: the first of its leaves. kind:
# of its devices; asks: whether the time of a batch is asked, because a fault may affect its operations. For continuous
# batching: the tokens that the cache has room for, and the tokens in whose place the state of a sequence is; points of
# context in a table, and the offsets in `numbers` of its tables of seconds, which tables of joules follow: linear and
# head by tokens and sequences, copy by the tokens of one copy of the attention (if there are several), prefill by
# windows and points of context, decode by sequences and points; `kinds` of windows, whose tokens are at `windows`;
# pipeline stages, the share of the layers of the largest one, and copies of the attention; step_factor: how many times
# as long as modelled a step takes. Of the serving engine: the largest step, in tokens and sequences; whether prompts
# are read in steps of their own (alone), are not divided where they fit (undivided), and are admitted only with room
# for their outputs (whole); its factors, the least seconds of a step with a prompt, and the host's of a step and of a
# sequence; the seconds that a request spends outside of steps, and how many times of reading its prompt pass before its
# first token is delivered. For speculative decoding: queries, the tokens of each decoding sequence in a step (1
# without), and the host's seconds of drafting. For adapters: slots; how many the host holds (0: all); the table
# `adapted` of seconds, then joules, by adapters and tokens; the seconds of a copy into a slot and of a read. For
# autoscaling: the number of devices in service that have a job, their device-ticks since the last decision, and the
# tick until which these are counted. For gangs: idle, the number of available devices without a job. For designs: how
# many a device holds (0 if it never loads any), and the ticks and the power above idle of a load. role: BOTH_ROLES,
# PREFILLS or DECODES. For KV caches that move: the bytes of a token and of a sequence's state on all devices of a copy
# of the attention, the rates (B/s) at which these devices send or receive inside a node and over the network, and the
# latencies (s). awake_w: the power above idle of all devices while they wait within a step.
CLASS = _layout(
    "first count tree leaf kind asks capacity state columns linear copy head prefill decode kinds windows stages "
    "copies most_tokens most_sequences alone undivided whole queries slots host adapted "
    "scaled working worked counted idle regions load_ticks role",
    "memory stage_share awake_w step_factor idle_w load_w decode_factor prefill_factor prompt_s host_s host_sequence_s "
    "drafting_s load_adapter_s read_adapter_s frontend_s late_prompts "
    "token_bytes state_bytes link_rate link_s network_rate network_s",
)
# What happens to interrupted jobs: whether they are retried, migrated or lost (fault_schedule.JOBS), the largest number
# of starts, the ticks of the first pause and of the longest one, and the factor between pauses. Row 0 is for real
# devices, row 1 + i for fault i of the scenario.
RULE = _layout("becomes attempts first longest", "factor")
# A job that waits, by slot. gives_up: the tick at which it leaves unless it has started, or -1; queue: where it waits,
# or -1; returns_to: the device to whose queue it returns after a pause, -1 if it is assigned anew, or LIMITED if a rate
# limit lets it wait.
WAIT = _layout("gives_up queue returns_to")
# A workload on a class, at class * workloads + workload. *_at: offset in `numbers` of the first job's value, or -1 if
# all jobs have one value. batch_at: offset of the seconds of a batch of one; the watts follow the seconds; -1 if the
# cost of a batch is asked. weights: the bytes that the jobs of a batch share. first_at: offset in `ints` of the ticks
# to the first token, or -1.
PROGRAM = _layout(
    "ways estimate_at energy_at footprint_at batch_at batch_drawn own first_at",
    "estimate energy footprint weights mean price preference",
)
WAY = _layout("first last")
# asks: whether its duration is asked when it begins, because a real device executes it. faults: the number of faults
# that may affect it; they are in `ints` from faults_at on. In a program that generates tokens they are those that may
# affect a batch or step with its requests. For devices with streams: the number of its hardware engine, the share of
# the engine that it takes, and whether it ends its body and its phase (the bodies of a phase run in parallel).
# design: what the device must hold for it, or -1; design_at: the offset in `ints` if it differs between jobs, or -1.
SEGMENT = _layout(
    "kind ticks ticks_at draw watts_at lane name engine ends_body:4 ends_phase:4 asks faults_at faults "
    "design design_at",
    "seconds watts share",
)
# gang: the number of devices that a job occupies. patience: its mean in seconds, or -1 if jobs wait for ever;
# patience_draw: the column of its draws, or -1. Of workloads with users: the first user, the next job's rank or, with
# sessions, the next session; for how many jobs random numbers were drawn; the offsets in `ints` of the signatures of
# the jobs, and in `numbers` of their draws and of their slowdowns (-1 without stragglers); comes_again: whether a user
# submits job after job, or session after session. sessions: the offset in `ints` of the rank of the first job of each,
# -1 without sessions; session_count: how many there are; thinks: the offset of the ticks before each job. max_waiting:
# how many jobs may wait when one of these arrives, or -1; rejected: the jobs that were not admitted for this reason;
# preempted: how often one of their sequences was preempted. With a prefix cache: the offsets in `ints` of the place of
# each job's chain, of the number by which it has a home device, and of the run of the blocks that it generates (-1 if
# no prompt holds these). With tiers: the blocks and tokens that completed requests found in the first and the second
# one when they last started. With speculative decoding: the offset in `ints` of two random words, and in `numbers` of
# the probabilities that at least 1, 2, ... drafted tokens are accepted. With adapters: the offset in `ints` of that of
# each job, or -1; how often an admitted sequence found its adapter in a slot, and how often one was loaded, and of
# these read from storage. With fair queueing: flows, the offset of the flow of each job, or -1 - flow if all have one.
# With a rate limit: limit_tokens in limit_ticks; limit_waits: whether requests above it wait; buckets: its first tenant
# in ``buckets``; tenants: the offset of the tenant of each job, or -1 if all have one.
WORKLOAD = _layout(
    "gang deadline priority way_at prompts outputs first_user taken capacity signatures draws_at stretch_at "
    "comes_again sessions session_count thinks "
    "patience_draw max_waiting rejected preempted chains homes answers blocks_1 tokens_1 blocks_2 tokens_2 "
    "draft_keys reached adapters adapter_hits adapter_loads adapter_reads flows "
    "limit_tokens limit_ticks limit_waits buckets tenants",
    "patience",
)
# thoughts: how often the user has thought, other than within sessions. Of the present session, rank: of the next job,
# and left: how many jobs there will be.
USER = _layout("work thoughts rank left")
INTERVAL = _layout("on lane name start end", "watts")
FAULT = EVENT
# A fault of single operations. number: its index in the scenario; kind: whether it ends, slows or corrupts; applies: to
# the operation that starts now. ticks: after how long it ends an operation, or -1 if at the operation's own end. limit:
# the largest number of affected operations, or -1; eligible, affected: how many there were. call: the first eligible
# operation that is affected, or 0; after: the tick from which on operations are affected. keys_at: the offset in `ints`
# of two random words for each workload. factor: of the time.
OPERATION_FAULT = _layout("number kind applies ticks limit eligible affected call after keys_at", "probability factor")
ARRIVAL = _layout("tick rank:4 signature:4 work:4", "stretch")
# One cache line. hits: blocks of its prompt that the prefix cache had at its last start.
JOB = _layout("arrival start finish first on:4 rank:4 signature:4 work:2 starts:2 lost:1 hits:4", "energy")
BATCH_OF_JOBS = _layout("latency_n waiting_n", "latency_sum waiting_sum")
SPAN = _layout("", "power waiting")
CHANGE = _layout("tick on before after")
# of: the job whose token it is, or -1 - device for a token of each decoding sequence of a device. A row without tokens
# says that the job's last token on the device `ticks`, which lost it, was at `end`.
GAP = _layout("ticks tokens end work of")
# What continuous batching needs of a device. chunks: how many sequences in prefill the present step processes. cached:
# tokens for which memory is reserved; promised: output tokens to come, for which room is kept if requests are admitted
# whole; pausing: whether no sequence decodes in the present step; produced: when the last token of the decoding
# sequences was produced before such steps; attended: the sum of the tokens that decoding sequences attend to; steps:
# completed so far. Lists of slots, first and last: reading, in prefill, in order of arrival; off: preempted, the next
# to resume first; decoding, the youngest last; ending: decoding, in the order of their ends; undelivered: ended while
# the device was unreachable. peak: the largest number of tokens for which a step needed memory; tokens: of prompts and
# outputs that it has processed. per_token: joules of a sequence decoding since the start of the run. Over the steps so
# far, times their ticks: held, cached tokens; present, sequences. With tiers of a prefix cache: the list of the
# sequences whose blocks are loaded, in the order in which they will be there; wakes: the last timer for one of them.
# With adapters: adapters, how many the sequences of the batch use; loading_s: what loads add to the next step. Of
# completed steps: decoded, decoding sequences; contexts, what these attended to; chunks_read, chunks of prompts;
# prompt_tokens, their tokens; spans, the tokens up to their ends; scores, pairs of a token and one that it attends to,
# windows aside.
SERVER = _layout(
    "chunks cached promised attended steps began pausing produced "
    "reading reading_end reading_count off decoding decoding_end decoding_count ending ending_end undelivered peak "
    "tokens loading loading_end loading_count wakes adapters decoded contexts chunks_read prompt_tokens",
    "per_token held present loading_s scores spans",
)
# A sequence has the number of its job's slot. prompt: tokens to process before the next output token: the job's prompt,
# and after a preemption also its output so far. output: tokens still to produce. read: processed tokens of the prompt;
# chunk: those in the present step. born, ends: the steps after which it began to decode and ends; joules_at_birth: its
# device's per_token at its beginning. last: when it was preempted, or began to decode. before: link of its list; later,
# earlier: links of the list of ending sequences. With a prefix cache: found, hits: runs and blocks that it found there;
# using: the runs whose blocks stay for it. With speculative decoding: made, the tokens that it has produced since it
# began to decode, with the first one. When its device became unreachable or was lost: delivered, its tokens until then;
# seen: when it produced the last one.
SEQUENCE = _layout(
    "prompt output read chunk born ends last before later earlier found hits using made delivered seen",
    "joules_at_birth",
)
# A place for an adapter, of a device or behind these of its host: its number (0: none), the sequences that use it, and
# the number of its last use.
ADAPTER = _layout("number users used")
# A flow of fair queueing. first, end: the flows of its priority are those from first up to end. prompt, output: what a
# token counts.
FLOW = _layout("first end prompt output")
# What a flow was served by one device, or with a central queue by all, and how many of its requests wait there. latest:
# of the first flow of a priority, the flow of this priority whose last waiting request left last, or -1.
SHARE = _layout("served waiting latest")
# A run of blocks in the prefix cache of a device (see ``transitions.prefixes``). before, next: links of its list.
# on: its cache. users: the sequences that use it. left: the weight of its blocks that are there, which are its last
# ones. ready: the tick from which on they are there.
NODE_OF_PREFIX = _layout("run:4 on:4 before:4 next:4 users:4 left:4 ready")
# A prefix cache of a device, or a tier below it. oldest, newest: first and last node of the blocks that may be removed,
# in the order of their last use; spare: their weight. Constants: room, for blocks that no sequence uses (not of a cache
# that shares the memory of sequences); block, the weight of a block; weights, the offset in `ints` of those of the
# runs. Of a tier: the time that its link takes for a token; free_at: the tick until which the link is busy; busy, for
# how long it was.
CACHE = _layout("oldest newest spare room block weights free_at busy", "ticks_per_token")
# What a request finds in tiers, by slot: in the first and the second one, blocks and tokens, and the tokens of these
# that are read even so; started_*: when it last started. ready: the tick at which all blocks that it found are on the
# device; waits: whether it waits for that.
LOAD = _layout(
    "ready waits blocks_1 tokens_1 read_1 blocks_2 tokens_2 read_2 "
    "started_blocks_1 started_tokens_1 started_blocks_2 started_tokens_2"
)

# What a device with continuous batching needs to hand requests over. holding: the first of the sequences whose prompt
# it has read and whose KV cache is here until it has been sent. incoming, incoming_end: the sequences that come to it,
# in order; the first `landed` of them have arrived, for the first `reserved` there is memory, and awaiting is the first
# of the other ones, of which there are `waiting`. sends_until, receives_until: until when its link is busy in each
# direction. node: the node that has all its devices, or -1. turn: when it was last chosen. listed, following: whether
# it is in the list of devices that may start work, and the next one there.
PORT = _layout(
    "holding incoming incoming_end landed reserved awaiting waiting sends_until receives_until node turn listed "
    "following"
)
# The way of the request of a slot from one device to another. stage: see HANDED and its kin; asked: the tick at which
# its prompt had been read; began, lands: of the transfer of `tokens` tokens of its KV cache; next: link of its list.
HANDOVER = _layout("stage:4 sender:4 receiver:4 next:4 tokens asked began lands")
# A transfer that has ended.
TRANSFER = _layout("job sender:4 receiver:4 tokens asked began landed")

# What a device with streams needs. jobs: in progress; oldest, newest: their slots; running, running_end: tasks that
# occupy an engine, in the order in which they began; active_since: the tick up to which the energy for being active is
# shared; is_active, active_from: whether any engine works, and since when. undelivered: jobs that ended while the
# device was unreachable. demand_w: of the running tasks at full speed; active_w: power of an active device; headroom_w:
# what the device's limit leaves for tasks; active_each_j: the cumulated energy per running task for being active;
# memory: free bytes; timed_end: the scheduled end of its next segment, or -1.
STATION = _layout(
    "jobs oldest newest running running_end is_active active_from active_since undelivered streams timed_end",
    "demand_w active_w headroom_w active_each_j memory peak_w",
)
# A hardware engine of a device with streams, at device * engines + engine: the tasks that wait for it, and its used
# share.
ENGINE = _layout("waiting waiting_end working", "used")
# A body of a job's phase on its way through its segments, on a device with streams. next, before: links of its list.
# end: of the present segment at its present rate; left: ticks at full speed; first_left: those that remain when it
# produces the first token, or -1. ending, timed, corrupted, loading: as in EXTRA.
TASK = _layout(
    "on slot segment lane since end next before ending:4 loading:4 timed:1 corrupted:1",
    "left watts share rate drawn active_j first_left",
)
# A job on a device with streams: the next segment after its present phase (-1 if none), the last segment of its
# program, its open tasks, and its neighbours in the list of the device's jobs.
# corrupted: whether its data are.
STREAM_JOB = _layout("phase last open earlier later corrupted", "memory peak_w")
# What gangs need of a device. leader: the device that leads its gang, -1 if it is in none. following: the next member
# of its gang, -1 if it is the last. rate: its own speed. victim: of a job that is about to be interrupted, the next
# such job by its device, -1 if it is the last; NOT_CHOSEN for other jobs.
GANG = _layout("leader following victim", "rate")

# What is known of the progress of the job of a slot. Positions are ticks of work: kept, saved: from which it continues,
# and its last checkpoint, both of the `whole` work on the class where it last started. restoring: whether its next
# start takes a restore; preempted: it waits because it was preempted. skipped: the work in its present segment that was
# done before. Of the present segment: position: at its beginning; work, restore: its time without checkpoints; due: its
# checkpoints; planned: its time with all of these; scheduled: its time with the faults of its operation.
PROGRESS_OF_JOB = _layout("kept saved whole restoring preempted skipped position work restore due planned scheduled")
# For each workload; every: 0 without checkpoints.
CHECKPOINT = _layout("every cost restore")
# Sums over the run, at full speed of the devices (ticks), and numbers of complete checkpoints and of preemptions.
# loading: the time for which devices loaded designs; loads: how often they began to.
OVERHEAD = _layout("checkpoint restore lost checkpoints preemptions loading loads")

BATCHES, STRETCHES = 2048, 64
"""The numbers of batches and stretches of a run, in order of arrival, with sums of times and histograms."""
BINS = 4416
"""Zero, and the bins of the sketch that cover all times in ticks: log(2^63) / log(gamma) of them."""
SPANS = 2048
"""The number of time bins for the means of power and waiting jobs."""
HOURS = 24
HOUR_TICKS = 3600 * 10**12
SAMPLE = 200_000
"""The number of jobs whose times are kept if a run has too many to keep all."""

PER_SECOND = 1e12
TOO_MANY = 9.2e18
"""The number of ticks above which a span is not representable."""
LATEST = 2**63 - 2
NEVER: Any = np.int64(2**63 - 1)

SINGLE, SERVER_KIND, STREAM = range(3)
"""Kinds of devices: one job or batch at a time, continuous batches, several jobs at a time."""
CONSTANT, BY_JOB, DRAWN = range(3)
"""How a segment's ticks are given: one number, one per job, or seconds times the job's draw."""
BY_PRESENT, BY_BACKLOG, BY_TURN, BY_EACH = range(4)
"""What a route ranks devices by, in the order of ``core.policy.Index``. ``BY_EACH``: it scores all of them."""
NO_BATCH, REQUEST = range(2)
NO_CACHE, SHARED_MEMORY, OWN_BLOCKS = range(3)
"""Prefix caches: none, in the memory that sequences leave, or of a stated number of blocks."""
BOTH_ROLES, PREFILLS, DECODES = range(3)
"""What a device with continuous batching does for a request."""
NOT_HANDED, HANDED, STRANDED, AWAITS, SENT, LANDED = range(6)
"""Stages of a request that moves: no device has been chosen yet, none is available, there is no memory yet, its KV
cache is on its way, it has arrived."""
REAL_RULE = 0
"""The row of RULE for jobs of real devices."""
LOST, LEFT, REJECTED = 1, 2, 3
"""How a job ended that did not complete: it failed, gave up waiting, or was not admitted."""
NOT_CHOSEN = -2
LIMITED = -2
NOT_PREEMPTED, RESUMED, RESTARTED = range(3)
"""Whether jobs are preempted, and where they continue."""

COMPLETION, LANDING, RESET, FAULT_EVENT, TIMER, READY, RETURN, LEAVE, DECIDE, ARRIVAL_EVENT = range(10)
"""Kinds of events, in the order in which those of one tick are processed."""
LANES, LANE_BASE = 4096, 2**40
"""An interval on a lane of an engine has the lane LANE_BASE + engine's word * LANES + lane."""
ENTITIES = 2**52
"""The order of events of one tick is kind * ENTITIES + entity."""

(
    DONE,
    MORE_JOBS,
    MORE_SLOTS,
    MORE_INTERVALS,
    MORE_TIMERS,
    MORE_FAULTS,
    MORE_BATCHES,
    MORE_ROWS,
    MORE_GAPS,
    MORE_CHANGES,
    MORE_THOUGHTS,
    MORE_CAPACITY,
    MORE_NODES,
    MORE_TRANSFERS,
    TOO_LONG,
    CHECK_SERVED,
    QUESTION,
) = range(17)
"""The reason why an engine stops advancing."""

NO_QUESTION, BATCH_COST, OPERATION, DECISION, READINESS, FAILED_OPERATION, RESET_DONE = range(7)
"""What is asked: the cost of a batch, the duration and end of an operation, an autoscaling decision, whether a device
has become ready, and what follows a failed operation and a reset."""


class World(NamedTuple):
    """All tables."""

    run: Records
    """One record for the run."""
    devices: Records
    extras: Records
    """The part of a device that only faults of operations, autoscaling and designs need."""
    gangs: Records
    """The part of a device that only jobs of several devices need."""
    servers: Records
    """The part of a device that only continuous batching needs."""
    stations: Records
    """The part of a device that only streams need."""
    engines: Records
    """The hardware engines of devices with streams."""
    lanes: np.ndarray
    """Whether each lane of an engine is occupied; shape (devices * engines, lanes)."""
    tasks: Records
    stream_jobs: Records
    """The part of a job that only streams need, by slot."""
    slots: Records
    """The jobs that are present."""
    sequences: Records
    """The part of a job that only continuous batching needs, by slot."""
    nodes: Records
    """The runs of blocks in all prefix caches."""
    caches: Records
    """The prefix caches of all devices, then those of each tier below them."""
    loads: Records
    """The part of a job that only tiers of prefix caches need, by slot."""
    node_index: Any
    """The hash table of the nodes: 1 + the node, or 0; its length is a power of two."""
    ports: Records
    """The part of a device that only requests that move need."""
    handovers: Records
    """The part of a job that only requests that move need, by slot."""
    transfers: Records
    """The transfers of KV caches that have ended."""
    waits: Records
    """The part of a job that only patience and pauses need, by slot."""
    rules: Records
    """What happens to interrupted jobs."""
    progress: Records
    """The part of a job that only checkpoints and preemption need, by slot."""
    checkpoints: Records
    """The checkpoints of each workload."""
    overhead: Records
    """One record, of what checkpoints, interruptions and loads cost."""
    resident: np.ndarray
    """The designs that devices hold; shape (2 devices + 1 + classes, regions). See ``transitions.designs``."""
    draws: np.ndarray
    """Each slot's draws: slots by draws."""
    ends: Records
    """The heap of working devices, by the tick at which their work ends (compiled engine)."""
    timers: Records
    """The heap of timers (compiled engine)."""
    tree: Records
    """The trees of the devices of each class by load, for routes."""
    idle: np.ndarray
    """The indexes of the idle devices of each class, for a central queue; shape (words,)."""
    classes: Records
    programs: Records
    ways: Records
    """Variants of programs: their first and last segments."""
    segments: Records
    workloads: Records
    ints: Any
    numbers: Any
    queues: Records
    decoding_of: np.ndarray
    """The number of decoding sequences, by device and workload, and then by flow."""
    adapters: Records
    accepted: np.ndarray
    """With speculative decoding: how often 0, 1, ... drafted tokens were accepted, by workload."""
    buckets: Any
    """The tick at which each tenant with a rate limit has all of its tokens again."""
    step_counts: np.ndarray
    """How many microbatches of completed steps had so many tokens (0), or sequences that produced a token (1); shape
    (classes, 2, numbers)."""
    flows: Records
    """The flows of fair queueing."""
    shares: Records
    """What each flow was served, at device * flows + flow; with a central queue by flow."""
    faults: Records
    operation_faults: Records
    line: Any
    """Ring buffer of the devices whose next work waits for power."""
    arrivals: Records
    arrival_draws: np.ndarray
    intervals: Records
    jobs: Records
    """Times of every ``stride``-th job."""
    gaps: Records
    """Times between tokens."""
    users: Records
    """The users of closed loops, who each wait for a job or think."""
    user_of: Any
    """The user who waits for the job of each slot, or -1."""
    submits: Records
    """The heap of the next submissions of users."""
    think_ticks: np.ndarray
    """The think times by number and user."""
    changes: Records
    """Changes of the states of scaled devices."""
    batches: Records
    """``BATCHES`` rows for each series: all jobs, then each workload."""
    bins: np.ndarray
    """Latency and waiting by (series, stretch) and bin (int32)."""
    counts: np.ndarray
    """Jobs completed, failed, running at the end, arrived, and dropped, by workload."""
    spans: Records
    hours: np.ndarray
    """Watts times ticks, by hour of day."""
    clock: Any = None
    """What schedules ends and timers in the process engine."""


_LINE = 64
_AT_ONCE = 1024


def records(count: int, layout: np.dtype, **values: int) -> Records:
    """Return ``count`` records that begin at a cache line: zeros, except for the fields in ``values``.

    They are written here because NumPy requests large pages only for memory that it does not get zeroed. With small
    pages a fleet of 100,000 devices spends its time on address translation.
    """
    rows = unwritten_records(count, layout)
    blank = np.zeros(min(count, _AT_ONCE), dtype=layout)
    for name, value in values.items():
        blank[name] = value
    # NumPy copies records one by one, and bytes all at once.
    written, one = rows.view(np.ndarray).view(np.uint8), blank.view(np.uint8)
    for first in range(0, len(written), max(len(one), 1)):
        part = written[first : first + len(one)]
        part[:] = one[: len(part)]
    return rows


def unwritten_records(count: int, layout: np.dtype) -> Records:
    """Return ``count`` records that begin at a cache line, whose fields have no values yet."""
    size = count * layout.itemsize
    room = np.empty(size + _LINE, dtype=np.uint8)
    first = -room.ctypes.data % _LINE
    return room[first : first + size].view(layout).view(np.recarray)
