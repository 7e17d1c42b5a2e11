/* Threads that take parts of a program, and the calls of kernels on them.
 *
 * The threads are of the system; Python never hears of them. They touch no Python object and end with the process.
 * A caller that holds `busy` publishes one job at a time. Whoever has raised `active` may read the job while `open`
 * is 1, and the caller neither changes it nor returns before `active` is 0.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "launcher.h"

/* The most threads, the caller among them. */
enum { MOST = 1024 };

/* Nanoseconds that an idle thread stays awake: longer than the Python code between two kernels, as a rule, and too
 * short to be much in the way of the threads of a BLAS that run next. Up to LINGER it stays awake but leaves the core
 * to whoever wants it: to wake takes as long as a kernel over a megabyte. */
enum { SPIN = 50000, LINGER = 300000 };

/* Bytes of scratch memory that a thread keeps for its next call. */
enum { KEEP = 1 << 20 };

/* The most parts of a range for each thread, so that a late one does not keep the others waiting, and in all: they lie on
 * the stack, as to ask for memory takes longer than a part. */
enum { RANGES = 16, RANGES_IN_ALL = 1 << 12 };

enum { LINE = 64 };

/* Each word that threads wait for or change has a cache line of its own. */
#define ALONE alignas(LINE)

typedef atomic_int word;

struct memory {
    void *address;
    size_t bytes;
};

typedef void phase_function(struct program *, void **arrays, int64_t first, int64_t last, void *own, void *common);

static ALONE word busy;
static ALONE word sequence; /* the number of the job; idle workers sleep on it */
static ALONE word sleepers;
static ALONE word open_job;
static ALONE word active;  /* workers that look at the job; the caller sleeps on it */
static ALONE word waiting; /* does it? */

ALONE int64_t pool_workers;
static ALONE pid_t threads[MOST];    /* what the system calls each worker */
static ALONE atomic_int cores[MOST]; /* where each was last, known once `threads` is; -1: not known */

static ALONE struct {
    int number; /* what `sequence` is once the job may be looked at */
    struct program *program;
    void **arrays;
    int64_t first, last;
    void *common;
} job;

static ALONE struct memory kept_own, kept_common;     /* of callers that keep the GIL */
static ALONE struct memory caller_own, caller_common; /* of the one that holds `busy` */

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static inline void rest(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex(word *at, int operation, int value) {
    syscall(SYS_futex, at, operation, value, NULL, NULL, 0);
}

/* Wait until `at` differs from `value`: awake for a short while, for a longer one awake as far as nobody else wants
 * the core, then asleep, and counted in `asleep`. */
static void wait_while(word *at, int value, word *asleep) {
    int64_t start = now();
    while (atomic_load(at) == value) {
        int64_t spent = now() - start;
        if (spent < SPIN) {
            rest();
        } else if (spent <= LINGER) {
            sched_yield();
        } else {
            atomic_fetch_add(asleep, 1);
            while (atomic_load(at) == value) /* counted first: who changes the word from now on wakes us */
                futex(at, FUTEX_WAIT_PRIVATE, value);
            atomic_fetch_sub(asleep, 1);
            return;
        }
    }
}

static void notify(word *at, word *asleep) {
    if (atomic_load(asleep))
        futex(at, FUTEX_WAKE_PRIVATE, INT32_MAX);
}

/* Return at least `bytes` of scratch memory, which is a multiple of a cache line; null when there is none. */
static void *room(struct memory *memory, size_t bytes) {
    if (memory->bytes < bytes) {
        free(memory->address);
        memory->address = aligned_alloc(LINE, bytes);
        memory->bytes = memory->address ? bytes : 0;
    }
    return memory->address;
}

/* Give scratch memory of more than `limit` bytes back. */
static void trim(struct memory *memory, size_t limit) {
    if (memory->bytes > limit) {
        free(memory->address);
        *memory = (struct memory){NULL, 0};
    }
}

static void run_part(struct program *program, int64_t index, void **arrays, void *own, void *common) {
    struct part *part = &program->parts[index];
    int64_t span[SPAN];
    memcpy(span, part->span, sizeof part->span);
    span[SPAN_OWN] = (intptr_t)own;
    span[SPAN_SHARED] = part->is_common ? (intptr_t)common : (intptr_t)own + part->offset;
    part->kernel(arrays + part->first, part->plan, span);
}

/* Run the parts from `first` to `last` on this thread. */
static void run_parts(struct program *program, void **arrays, int64_t first, int64_t last, void *own, void *common) {
    for (int64_t index = first; index < last; index++)
        run_part(program, index, arrays, own, common);
}

/* Take parts of the job, those first that thread `index` also took when the job was there before: its cache may still
 * hold their data. `index` is below the number of threads. */
static void take(int64_t index, void *own) {
    struct program *program = job.program;
    int64_t first = job.first, last = job.last, count = last - first;
    int number = job.number;
    atomic_int *claims = (atomic_int *)program->claims;
    int64_t part = first + count * index / program->threads;
    for (int64_t walked = 0; walked < count; walked++) {
        if (atomic_exchange(&claims[part], number) != number)
            run_part(program, part, job.arrays, own, job.common);
        if (++part == last)
            part = first;
    }
}

/* The body of a worker, thread `number`, which is 1 or more. It never returns. */
static void *work(void *number) {
    int64_t index = (intptr_t)number;
    struct memory memory = {NULL, 0};
    int seen = 0;
    threads[index] = (pid_t)syscall(SYS_gettid);
    for (;;) {
        atomic_store(&cores[index], sched_getcpu());
        wait_while(&sequence, seen, &sleepers);
        seen = atomic_load(&sequence);
        atomic_fetch_add(&active, 1);
        if (atomic_load(&open_job) && index < job.program->threads) {
            void *own = room(&memory, job.program->own);
            if (own != NULL) { /* else others do all of it */
                take(index, own);
                trim(&memory, KEEP);
            }
        }
        if (atomic_fetch_sub(&active, 1) == 1)
            notify(&active, &waiting);
    }
    return NULL;
}

/* Send the workers that were last on the caller's core to other cores. The system would let them share it for long: it
 * sees two threads that hardly run. */
static void spread(int64_t count) {
    int core = sched_getcpu();
    for (int64_t index = 1; index < count; index++) {
        cpu_set_t others;
        if (atomic_load(&cores[index]) != core || core < 0 || core >= CPU_SETSIZE)
            continue;
        CPU_ZERO(&others);
        sched_getaffinity(0, sizeof others, &others);
        CPU_CLR(core, &others);
        sched_setaffinity(threads[index], sizeof others, &others);
        atomic_store(&cores[index], -1);
    }
}

/* Run the parts from `first` to `last` on all threads. */
static void share(struct program *program, void **arrays, int64_t first, int64_t last, void *own, void *common) {
    job.program = program;
    job.arrays = arrays;
    job.common = common;
    job.first = first;
    job.last = last;
    job.number = job.number == INT_MAX ? 1 : job.number + 1; /* never 0, which no claim has been made with */
    atomic_store(&open_job, 1);
    atomic_store(&sequence, job.number);
    spread(program->threads);
    notify(&sequence, &sleepers);
    take(0, own);
    atomic_store(&open_job, 0);
    for (int left; (left = atomic_load(&active)) != 0;)
        wait_while(&active, left, &waiting);
}

/* Run all phases by `how`, with scratch memory from `own` and `common`. Return 0, or 1 when there is no memory. */
static inline int run_phases(struct program *program, void **arrays, struct memory *own, struct memory *common,
                             phase_function *how, size_t limit) {
    void *own_room = room(own, program->own), *common_room = room(common, program->common);
    int failed = own_room == NULL || common_room == NULL;
    if (!failed) {
        int64_t first = 0;
        for (int64_t phase = 0; phase < program->phase_count; phase++) {
            how(program, arrays, first, program->phases[phase], own_room, common_room);
            first = program->phases[phase];
        }
    }
    trim(own, limit);
    trim(common, limit);
    return failed;
}

/* Run a program on this thread, which holds the GIL and keeps it. */
int run_kept(struct program *program, void **arrays) {
    return run_phases(program, arrays, &kept_own, &kept_common, run_parts, KEEP);
}

/* Run a program without the GIL. A caller that finds the pool busy, or wants no helper, does all by itself. */
int run_free(struct program *program, void **arrays) {
    int idle = 0, status;
    if (program->threads > 1 && atomic_compare_exchange_strong(&busy, &idle, 1)) {
        status = run_phases(program, arrays, &caller_own, &caller_common, share, KEEP);
        atomic_store(&busy, 0);
    } else {
        struct memory own = {NULL, 0}, common = {NULL, 0};
        status = run_phases(program, arrays, &own, &common, run_parts, 0);
    }
    return status;
}

/* Call a kernel, which has no operands, for the numbers from 0 to `count`, some at a time: its span begins with the first
 * of them and the one after the last. The GIL is not held; `count` and `threads` are positive. Return as `run_free`. */
int run_range(kernel_function *kernel, void *plan, int64_t count, int64_t threads) {
    int64_t most = threads * RANGES < RANGES_IN_ALL ? threads * RANGES : RANGES_IN_ALL;
    int64_t parts = count < most ? count : most;
    struct part list[parts];
    int32_t claims[parts];
    memset(claims, 0, sizeof claims);
    for (int64_t k = 0; k < parts; k++)
        list[k] = (struct part){kernel, .plan = plan, .span = {k * count / parts, (k + 1) * count / parts}};
    struct program program = {.threads = threads, .parts = list, .phases = &parts, .phase_count = 1,
                              .claims = claims, .own = LINE, .common = LINE};
    return run_free(&program, NULL);
}

/* Have at least so many workers, or as many as the system gives; callers do what is left. The GIL is held, so that no
 * two workers get the same number. */
void pool_grow(int64_t workers) {
    pthread_attr_t detached;
    sigset_t all, before;
    if (workers > MOST - 1)
        workers = MOST - 1;
    if (workers <= pool_workers)
        return;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all); /* a new thread inherits the mask: signals are for Python's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool_workers < workers) {
        pthread_t thread;
        if (pthread_create(&thread, &detached, work, (void *)(intptr_t)(pool_workers + 1)))
            break;
        pool_workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
}

/* There are no workers, at the start and in a child process: forget them, and the job that they may have had. Memory
 * that the caller of the parent was writing to is lost. */
void pool_forget(void) {
    for (int index = 0; index < MOST; index++)
        atomic_store_explicit(&cores[index], -1, memory_order_relaxed);
    pool_workers = 0;
    atomic_store(&busy, 0);
    atomic_store(&sleepers, 0);
    atomic_store(&open_job, 0);
    atomic_store(&active, 0);
    atomic_store(&waiting, 0);
    caller_own = caller_common = (struct memory){NULL, 0};
}

/* Do the actions of the turns from `first` on, until `last`, or until `limit` nanoseconds are over. The GIL is not
 * held; there is room for the operands of any action at `operands`. Return the turn that comes next, or -1 when memory
 * is lacking. */
int64_t repeat(struct action *actions, int64_t count, int64_t phases, int64_t first, int64_t last, int64_t limit,
               void **operands) {
    int64_t start = now(), turn = first;
    while (turn < last) {
        int64_t phase = turn % phases, since = turn - phase;
        for (struct action *action = actions; action < actions + count; action++) {
            int64_t *bases = action->addresses + phase * action->count;
            for (int64_t k = 0; k < action->count; k++)
                operands[k] = (void *)(bases[k] + action->steps[k] * since);
            if (action->program == NULL)
                action->function(operands, action->plan);
            else if (run_free(action->program, operands))
                return -1;
        }
        turn++;
        if (now() - start > limit)
            break;
    }
    return turn;
}

/* Do one action of a sequence. Return 0, or 1 when there is no memory. */
static inline int act(struct action *action, void **arrays, void **operands, struct memory *own, struct memory *common) {
    for (int64_t k = 0; k < action->count; k++)
        operands[k] = (char *)arrays[action->addresses[k]] + action->steps[k];
    if (action->program == NULL) {
        action->function(operands, action->plan);
        return 0;
    }
    if (action->program->threads > 1)
        return run_free(action->program, operands);
    return run_phases(action->program, operands, own, common, run_parts, KEEP);
}

/* Do a whole sequence, which is short and needs one thread; the GIL is held. Return as `follow_free`. */
int64_t follow_kept(struct sequence *sequence, void **arrays, void **operands) {
    int64_t done = 0;
    while (done < sequence->action_count &&
           !act(&sequence->actions[done], arrays, operands, &kept_own, &kept_common))
        done++;
    return done < sequence->action_count ? -1 : done;
}

/* Do the actions of a sequence from `first` on, for about `limit` nanoseconds. The GIL is not held. Return the action
 * that comes next, or -1 when memory is lacking. */
int64_t follow_free(struct sequence *sequence, int64_t first, int64_t limit, void **arrays, void **operands) {
    enum { SOME = 16 };
    struct memory own = {NULL, 0}, common = {NULL, 0};
    int64_t start = now(), next = first, failed = 0;
    while (!failed && next < sequence->action_count && now() - start < limit)
        for (int64_t k = 0; !failed && k < SOME && next < sequence->action_count; k++)
            failed = act(&sequence->actions[next++], arrays, operands, &own, &common);
    trim(&own, 0);
    trim(&common, 0);
    return failed ? -1 : next;
}
