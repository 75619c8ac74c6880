/* Two requests move from P to D, as numbers of tokens and blocks alone; each engine has a pool.
 *
 * P truncates a prompt once, prefills it in chunks of any length, and may preempt it. D takes blocks
 * for the tokens that its own cache does not hold, and reads block by block; a read may fail.
 *
 * Macros to give: PROMPT, CHUNK, OUTPUT, BLOCK_SIZE, P_BLOCKS, D_BLOCKS. Every step is atomic, and
 * what is only used within a step is hidden, so nothing between two steps is stored. The numbers
 * have as many bits as such sizes need; more tokens than 511 do not fit.
 */

#define BACKOFF 1
#define BLOCKS(tokens) (((tokens) + BLOCK_SIZE - 1) / BLOCK_SIZE)

#define NEW 0
#define PREFILL 1
#define OFFERED 2
#define LOADING 3
#define DECODE 4
#define DONE 5

typedef Request {
    unsigned phase : 3;
    unsigned prompt : 9;
    unsigned computed : 9;
    unsigned p_held : 8;
    unsigned d_held : 8;
    unsigned hit : 8;
    unsigned left : 8
};

unsigned p_free : 8 = P_BLOCKS;
unsigned d_free : 8 = D_BLOCKS;
Request first;
Request second;
hidden short chosen;
hidden short held;

#define MAY_PREFILL(r, tokens) \
    ((tokens) <= CHUNK && r.computed + (tokens) <= r.prompt && \
     BLOCKS(r.computed + (tokens)) - r.p_held <= p_free)
#define MAY_LOAD(r, blocks) \
    ((blocks) <= PROMPT / BLOCK_SIZE && (blocks) * BLOCK_SIZE < r.prompt && \
     BLOCKS(r.prompt) <= d_free)

inline admit(r) {
    if
    :: r.prompt == 0 -> r.prompt = (PROMPT > BACKOFF -> PROMPT - BACKOFF : PROMPT)
    :: else
    fi;
    r.phase = PREFILL
}

inline prefill(r) {
    held = BLOCKS(r.computed + chosen);
    p_free = p_free - (held - r.p_held);
    r.computed = r.computed + chosen;
    r.p_held = held
}

inline preempt(r) {
    p_free = p_free + r.p_held;
    r.phase = NEW; r.computed = 0; r.p_held = 0
}

inline load(r) {
    held = BLOCKS(r.prompt);
    d_free = d_free - held;
    r.phase = LOADING; r.hit = chosen; r.d_held = held;
    held = (held < r.p_held -> held : r.p_held);
    r.left = (held > chosen -> held - chosen : 0)
}

inline fail(r) {
    d_free = d_free + r.d_held;
    r.phase = OFFERED; r.d_held = 0; r.hit = 0; r.left = 0
}

inline loaded(r) {
    p_free = p_free + r.p_held;
    r.phase = DECODE; r.p_held = 0; r.hit = 0
}

inline decode(r) {
    held = BLOCKS(r.computed + 1);
    d_free = d_free - (held - r.d_held);
    r.computed = r.computed + 1; r.d_held = held
}

inline finish(r) {
    d_free = d_free + r.d_held;
    r.phase = DONE; r.d_held = 0
}

#define STEPS(r) \
    :: d_step { r.phase == NEW -> admit(r) } \
    :: atomic { r.phase == PREFILL && MAY_PREFILL(r, 1) -> \
        chosen = 1; \
        do \
        :: MAY_PREFILL(r, chosen + 1) -> chosen++ \
        :: break \
        od; \
        d_step { prefill(r) } } \
    :: d_step { r.phase == PREFILL -> preempt(r) } \
    :: d_step { r.phase == PREFILL && r.computed == r.prompt -> r.phase = OFFERED } \
    :: atomic { r.phase == OFFERED && MAY_LOAD(r, 0) -> \
        chosen = 0; \
        do \
        :: MAY_LOAD(r, chosen + 1) -> chosen++ \
        :: break \
        od; \
        d_step { load(r) } } \
    :: d_step { r.phase == LOADING && r.left > 0 -> r.left = r.left - 1 } \
    :: d_step { r.phase == LOADING -> fail(r) } \
    :: d_step { r.phase == LOADING && r.left == 0 -> loaded(r) } \
    :: d_step { r.phase == DECODE && r.computed < PROMPT + OUTPUT && \
                BLOCKS(r.computed + 1) - r.d_held <= d_free -> decode(r) } \
    :: d_step { r.phase == DECODE && r.computed == PROMPT + OUTPUT -> finish(r) }

#define POOLS_ADD_UP \
    (p_free + first.p_held + second.p_held == P_BLOCKS && \
     d_free + first.d_held + second.d_held == D_BLOCKS)
#define TRUNCATED_ONCE(r) \
    ((r.prompt == 0 && r.phase == NEW) || r.prompt == PROMPT - BACKOFF)

active proctype scheduler() {
    do
    STEPS(first)
    STEPS(second)
    :: d_step { !(POOLS_ADD_UP && TRUNCATED_ONCE(first) && TRUNCATED_ONCE(second)) -> \
        assert(false) }
    od
}
