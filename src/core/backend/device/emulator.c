/* The emulator: fibers, barriers and warp operations. A fiber is a saved stack pointer; emulator_switch saves
 * the registers that a call preserves, changes the stack, and restores them. Under the sanitizers it
 * announces its stacks, and to the thread sanitizer the threads of a block are ordered by barriers and warp
 * operations only, so that a race between them is reported. */
#include "backend/device/emulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/memory.h"
#include "norma/status.h"

#if defined(__SANITIZE_THREAD__)
#define EMULATOR_TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define EMULATOR_ASAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EMULATOR_TSAN 1
#elif __has_feature(address_sanitizer)
#define EMULATOR_ASAN 1
#endif
#endif
#ifdef EMULATOR_TSAN
#include <sanitizer/tsan_interface.h>
#define TSAN(call) call
/* Of the emulator's functions, which run partly as one fiber and partly as another: only accesses of kernels
 * are compared. */
#define UNTRACED __attribute__((no_sanitize("thread")))
#else
#define TSAN(call)
#define UNTRACED
#endif
#ifdef EMULATOR_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define ASAN(call) call
#else
#define ASAN(call)
#endif

/* Stacks are an odd number of cache lines apart, so that they do not evict each other from the cache. */
enum { MAX_THREADS = 1024, STACK_BYTES = (64 << 10) + 17 * 64, SHARED_BYTES = 96 << 10, WARP_THREADS = 32 };
typedef enum fiber_state { FIBER_READY, FIBER_AT_BARRIER, FIBER_AT_WARP, FIBER_FINISHED } fiber_state;

/* The operands of a matrix instruction of a warp */
struct fragments {
    double a[16][16], b[8][16]; /* b: column by column */
};

/* What one system thread needs to run a block. */
typedef struct machine {
    const nm_device_kernel *kernel;
    const void *args;
    int current; /* the thread of the block that runs */
    int next;    /* index in `order` of the thread that runs after it */
    int at_barrier, at_warp[MAX_THREADS / WARP_THREADS], finished; /* threads that wait, or have ended */
    bool warps_wait;
    void *main_stack, *stack[MAX_THREADS];
    const void *main_bottom; /* of the stack of the system thread, for the address sanitizer */
    size_t main_bytes;
    fiber_state state[MAX_THREADS];
    int order[MAX_THREADS];
    /* Values of a warp operation: two sets, so that a thread can begin the next operation while others read
     * this one. */
    int parity[MAX_THREADS];
    float values[2][MAX_THREADS];
    struct fragments fragments[2][MAX_THREADS / WARP_THREADS];
    size_t shared_used[MAX_THREADS];
    char *shared, *stacks;
#ifdef EMULATOR_TSAN
    void *main_fiber, *fiber[MAX_THREADS];
#endif
    char start, barrier, warp[MAX_THREADS / WARP_THREADS], end; /* addresses, for the thread sanitizer */
} machine;

_Thread_local int nm_emulator_thread, nm_emulator_block, nm_emulator_block_y;
static _Thread_local machine *self;
static nm_emulator_order thread_order;

void nm_emulator_set_order(nm_emulator_order order)
{
    thread_order = order;
}

static _Noreturn void fail(const machine *m, const char *what)
{
    fprintf(stderr, "emulator: kernel %s, block (%d, %d), thread %d: %s\n", m->kernel->name,
            nm_emulator_block, nm_emulator_block_y, nm_emulator_thread, what);
    abort();
}

/* Pushes the registers that calls preserve, stores the stack pointer in *from, and continues at `to`. */
void nm_emulator_switch(void **from, void *to);
#if defined(__x86_64__)
enum { SAVED_WORDS = 6 };
#else
enum { SAVED_WORDS = 19 };
#endif
#if defined(__x86_64__)
__asm__(".text\n.globl nm_emulator_switch\n.hidden nm_emulator_switch\n.type nm_emulator_switch,@function\n"
        "nm_emulator_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
        ".size nm_emulator_switch,.-nm_emulator_switch\n");
#elif defined(__aarch64__)
__asm__(".text\n.globl nm_emulator_switch\n.hidden nm_emulator_switch\n.type nm_emulator_switch,%function\n"
        "nm_emulator_switch:\n"
        "sub sp,sp,#160\n"
        "stp x19,x20,[sp]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\nstp "
        "x27,x28,[sp,#64]\n"
        "stp d8,d9,[sp,#80]\nstp d10,d11,[sp,#96]\nstp d12,d13,[sp,#112]\nstp d14,d15,[sp,#128]\nstp "
        "x29,x30,[sp,#144]\n"
        "mov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
        "ldp x19,x20,[sp]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\nldp "
        "x27,x28,[sp,#64]\n"
        "ldp d8,d9,[sp,#80]\nldp d10,d11,[sp,#96]\nldp d12,d13,[sp,#112]\nldp d14,d15,[sp,#128]\nldp "
        "x29,x30,[sp,#144]\n"
        "add sp,sp,#160\nret\n"
        ".size nm_emulator_switch,.-nm_emulator_switch\n");
#else
void nm_emulator_switch(void **from, void *to)
{
    (void)from;
    (void)to;
    fprintf(stderr, "emulator: this processor has no nm_emulator_switch\n");
    abort();
}
#endif

static char *stack_of(const machine *m, int thread)
{
    return m->stacks + (size_t)thread * STACK_BYTES;
}

/* Every thread of a warp waits: all of them may continue. */
UNTRACED static void release_warps(machine *m)
{
    m->warps_wait = false;
    for (int w = 0; w < m->kernel->threads / WARP_THREADS; w++) {
        nm_emulator_thread = w * WARP_THREADS;
        if (m->at_warp[w] && m->at_warp[w] < WARP_THREADS)
            fail(m, "not all threads of the warp reach a warp operation");
        for (int t = 0; m->at_warp[w] && t < WARP_THREADS; t++)
            m->state[w * WARP_THREADS + t] = FIBER_READY;
        m->at_warp[w] = 0;
    }
}

UNTRACED static void release_barrier(machine *m)
{
    const int n = m->kernel->threads;
    if (m->at_barrier == n) {
        m->at_barrier = 0;
        for (int t = 0; t < n; t++)
            m->state[t] = FIBER_READY;
    } else if (m->at_barrier && m->at_barrier + m->finished == n) {
        for (nm_emulator_thread = 0; m->state[nm_emulator_thread] != FIBER_FINISHED;)
            nm_emulator_thread++;
        fail(m, "not all threads of the block reach a barrier");
    }
}

/* The next thread that is ready in the order of the block, or -1: all have ended. When all that were ready
 * have run, those that wait for each other may continue. */
UNTRACED static int next_thread(machine *m)
{
    const int n = m->kernel->threads;
    for (;;) {
        while (m->next < n) {
            const int thread = m->order[m->next++];
            if (m->state[thread] == FIBER_READY)
                return thread;
        }
        if (m->finished == n)
            return -1;
        m->next = 0;
        if (m->warps_wait)
            release_warps(m);
        release_barrier(m);
    }
}

/* From the thread that runs to the next one, or, if all have ended, to the system thread. */
UNTRACED static void leave(machine *m)
{
    const int me = m->current, next = next_thread(m);
    if (next >= 0)
        m->current = nm_emulator_thread = next;
    ASAN(void *fake = NULL);
    ASAN(__sanitizer_start_switch_fiber(&fake, next < 0 ? m->main_bottom : stack_of(m, next),
                                        next < 0 ? m->main_bytes : STACK_BYTES));
    TSAN(__tsan_switch_to_fiber(next < 0 ? m->main_fiber : m->fiber[next], __tsan_switch_to_fiber_no_sync));
    nm_emulator_switch(&m->stack[me], next < 0 ? m->main_stack : m->stack[next]);
    ASAN(__sanitizer_finish_switch_fiber(fake, NULL, NULL));
}

/* From the system thread to the first thread of a block, until all have ended */
UNTRACED static void enter(machine *m)
{
    const int first = m->current = nm_emulator_thread = next_thread(m);
    ASAN(void *fake = NULL);
    ASAN(__sanitizer_start_switch_fiber(&fake, stack_of(m, first), STACK_BYTES));
    TSAN(__tsan_switch_to_fiber(m->fiber[first], __tsan_switch_to_fiber_no_sync));
    nm_emulator_switch(&m->main_stack, m->stack[first]);
    ASAN(__sanitizer_finish_switch_fiber(fake, NULL, NULL));
}

/* A fiber runs its thread of every block and never returns: the sanitizers keep the calls of each fiber. */
UNTRACED static void run_thread(void)
{
    machine *m = self;
    /* The first fiber learns the stack of the system thread. */
    ASAN(__sanitizer_finish_switch_fiber(NULL, m->main_bottom ? NULL : &m->main_bottom,
                                         m->main_bytes ? NULL : &m->main_bytes));
    for (;;) {
        TSAN(__tsan_acquire(&m->start));
        m->kernel->entry(m->args);
        m->state[m->current] = FIBER_FINISHED;
        m->finished++;
        TSAN(__tsan_release(&m->end));
        leave(m);
    }
}

static void *prepare_stack(const machine *m, int thread)
{
    void **top = (void **)(void *)stack_of(m, thread + 1);
#if defined(__x86_64__)
    *--top = NULL; /* no caller; keeps the stack aligned */
#endif
    *--top = (void *)(uintptr_t)run_thread; /* x86-64: return address; Arm: x30 */
    for (int i = 0; i < SAVED_WORDS; i++)
        *--top = NULL;
    return top;
}

UNTRACED static void prepare_thread(machine *m, int thread)
{
    if (!m->stack[thread])
        m->stack[thread] = prepare_stack(m, thread);
    m->state[thread] = FIBER_READY;
    m->shared_used[thread] = 0;
    m->parity[thread] = 0;
}

static machine *machine_of_thread(void)
{
    if (self)
        return self;
    machine *m = nm_allocate(sizeof *m);
    m->stacks = mmap(NULL, (size_t)MAX_THREADS * STACK_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    m->shared = aligned_alloc(64, SHARED_BYTES);
    if (m->stacks == MAP_FAILED || !m->shared)
        nm_out_of_memory((size_t)MAX_THREADS * STACK_BYTES);
    return self = m;
}

UNTRACED static void choose_order(machine *m, uint64_t block)
{
    const int n = m->kernel->threads;
    for (int i = 0; i < n; i++)
        m->order[i] = thread_order == NM_EMULATOR_DESCENDING ? n - 1 - i : i;
    uint32_t random = (uint32_t)block * 2654435761u + 1;
    for (int i = n - 1; thread_order == NM_EMULATOR_SHUFFLED && i > 0; i--) {
        random = random * 1664525u + 1013904223u;
        const int j = (int)((random >> 8) % (uint32_t)(i + 1)), other = m->order[j];
        m->order[j] = m->order[i];
        m->order[i] = other;
    }
}

UNTRACED static void run_fibers(machine *m)
{
    const int n = m->kernel->threads;
    memset(m->shared, 0xFF, SHARED_BYTES);
    ASAN(ASAN_POISON_MEMORY_REGION(m->shared, SHARED_BYTES));
    for (int t = 0; t < n; t++)
        prepare_thread(m, t);
    TSAN(__tsan_release(&m->start));
    m->next = m->finished = 0;
    enter(m);
    TSAN(__tsan_acquire(&m->end));
    ASAN(ASAN_UNPOISON_MEMORY_REGION(m->shared, SHARED_BYTES));
}

UNTRACED static void run_block(const nm_device_kernel *kernel, const void *args, int64_t block,
                               int64_t blocks_x)
{
    nm_emulator_block = (int)(block % blocks_x);
    nm_emulator_block_y = (int)(block / blocks_x);
    machine *m = machine_of_thread();
    m->kernel = kernel;
    m->args = args;
    choose_order(m, (uint64_t)block);
#ifdef EMULATOR_TSAN
    m->main_fiber = __tsan_get_current_fiber();
    for (int t = 0; kernel->meets && t < kernel->threads; t++)
        if (!m->fiber[t])
            m->fiber[t] = __tsan_create_fiber(0);
#endif
    if (kernel->meets) {
        run_fibers(m);
        return;
    }
    for (int i = 0; i < kernel->threads; i++) {
        nm_emulator_thread = m->order[i];
        kernel->entry(args);
    }
}

void nm_emulator_run(const nm_device_kernel *kernel, int64_t blocks_x, int64_t blocks_y, int threads,
                     const void *args)
{
    NM_ASSERT(kernel->threads % WARP_THREADS == 0 && kernel->threads <= MAX_THREADS);
    /* limits of CUDA's grids */
    NM_ASSERT(blocks_x > 0 && blocks_x <= INT32_MAX && blocks_y > 0 && blocks_y <= 65535);
    __atomic_add_fetch(kernel->launches, 1, __ATOMIC_RELAXED);
#ifdef EMULATOR_TSAN
    threads = 1; /* libgomp has no annotations: of blocks, only the threads of one are compared */
#endif
    const int64_t blocks = blocks_x * blocks_y;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (blocks > 1)
    for (int64_t i = 0; i < blocks; i++)
        run_block(kernel, args, i, blocks_x);
}

UNTRACED void *nm_emulator_shared(size_t bytes)
{
    machine *m = self;
    size_t *used = &m->shared_used[m->current];
    char *memory = m->shared + *used;
    *used += (bytes + 127) / 64 * 64; /* with a gap of 64 bytes or more */
    if (!m->kernel->meets || *used > SHARED_BYTES)
        fail(m, "more than 96 KiB of shared memory, or shared memory without barriers");
    ASAN(ASAN_UNPOISON_MEMORY_REGION(memory, bytes));
    return memory;
}

UNTRACED void nm_emulator_barrier(void)
{
    machine *m = self;
    if (!m->kernel->meets)
        fail(m, "a barrier in a kernel whose threads do not meet");
    m->state[m->current] = FIBER_AT_BARRIER;
    m->at_barrier++;
    TSAN(__tsan_release(&m->barrier));
    leave(m);
    TSAN(__tsan_acquire(&m->barrier));
}

/* The threads of a warp wait for each other. As on a GPU, only WARP_SYNC orders their accesses to memory. */
UNTRACED static void meet_warp(machine *m)
{
    if (!m->kernel->meets)
        fail(m, "a warp operation in a kernel whose threads do not meet");
    m->state[m->current] = FIBER_AT_WARP;
    m->at_warp[m->current / WARP_THREADS]++;
    m->warps_wait = true;
    leave(m);
}

UNTRACED void nm_emulator_warp_sync(void)
{
    machine *m = self;
    TSAN(__tsan_release(&m->warp[m->current / WARP_THREADS]));
    meet_warp(m);
    TSAN(__tsan_acquire(&m->warp[m->current / WARP_THREADS]));
}

UNTRACED float nm_emulator_warp_xor(float v, int mask)
{
    machine *m = self;
    const int me = m->current, parity = m->parity[me] ^= 1;
    m->values[parity][me] = v;
    meet_warp(m);
    return m->values[parity][me ^ mask];
}

static void unpack_bf16(double pair[2], u32 bits)
{
    pair[0] = (double)nm_emulator_float(bits << 16);
    pair[1] = (double)nm_emulator_float(bits & 0xFFFF0000u);
}

/* Fragments: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type" */
UNTRACED void nm_emulator_mma_bf16(float d[4], const u32 a[4], const u32 b[2])
{
    machine *m = self;
    const int me = m->current, row = me % WARP_THREADS / 4, col = me % 4 * 2, parity = m->parity[me] ^= 1;
    struct fragments *f = &m->fragments[parity][me / WARP_THREADS];
    for (int i = 0; i < 4; i++)
        unpack_bf16(&f->a[row + i % 2 * 8][col + i / 2 * 8], a[i]);
    for (int i = 0; i < 2; i++)
        unpack_bf16(&f->b[row][col + i * 8], b[i]);
    meet_warp(m);
    const double *const a0 = f->a[row], *const a8 = f->a[row + 8];
    const double *const b0 = f->b[col], *const b1 = f->b[col + 1];
    double sum0 = (double)d[0], sum1 = (double)d[1], sum2 = (double)d[2], sum3 = (double)d[3];
    for (int k = 0; k < 16; k++) {
        sum0 += a0[k] * b0[k];
        sum1 += a0[k] * b1[k];
        sum2 += a8[k] * b0[k];
        sum3 += a8[k] * b1[k];
    }
    d[0] = (float)sum0;
    d[1] = (float)sum1;
    d[2] = (float)sum2;
    d[3] = (float)sum3;
}
