/* What launcher.c, pool.c, copies.c and strides.c share, and the structures that Python fills in.
 *
 * Python has each structure as a ctypes structure of the same name in structures.py, field by field. Whoever changes
 * one here, or a function that Python or a kernel calls, changes it there and raises VERSION in both places: a
 * library that was built before is then refused, with the command that builds it again.
 */
#ifndef MGB_LAUNCHER_H
#define MGB_LAUNCHER_H

#include <stdbool.h>
#include <stdint.h>

#define VERSION 3

/* A kernel: the addresses of its operands, its plan, the span of the work that this call is to do. */
typedef int64_t kernel_function(void **operands, void *plan, int64_t *span);

/* A function that a loop calls beside kernels. */
typedef void turn_function(void **operands, void *plan);

enum { SPAN = 8, SPAN_GIVEN = 6, SPAN_OWN = 6, SPAN_SHARED = 7 };

struct part {
    kernel_function *kernel;
    int64_t first; /* of its operands */
    void *plan;
    int64_t span[SPAN_GIVEN]; /* without its memory */
    int64_t offset;           /* where the memory for what threads share begins in that of the thread */
    int64_t is_common;        /* is it the memory that threads really share? */
};

/* A launch for one set of shapes, strides and threads. */
struct program {
    void *owner;      /* the Python object that owns this memory */
    int64_t threads;  /* 0: run by the caller, which keeps the GIL */
    int64_t *signature; /* of each input and output the number of axes, the shape, the strides */
    int64_t (*hazards)[2]; /* pairs of places of arrays that must not begin at the same address */
    int64_t hazard_count;
    int64_t *operands; /* the places of the arrays that the kernels get, one kernel after the other */
    int64_t operand_count;
    struct part *parts;
    int64_t *phases; /* where each phase ends among the parts; it begins when the one before is done */
    int64_t phase_count;
    int32_t *claims; /* one for each part: the number of the job in which it was last taken */
    int64_t own;     /* scratch memory of a thread, in bytes */
    int64_t common;  /* scratch memory that threads share */
};

/* What the function `run` of a launcher knows. */
struct site {
    void *slow;       /* the Python function for calls that fit no program */
    void *threads;    /* the Python function that tells how many threads are wanted */
    void *array_type; /* the type of arrays */
    int64_t inputs;
    int64_t outputs;
    void **constants;
    int64_t constant_count;
    struct program **recent; /* to be looked at first to last, then null; replaced as a whole, never changed */
};

/* What a loop does in each of its turns, or a sequence once, one action after the other. */
struct action {
    struct program *program;
    turn_function *function; /* where there is no program */
    void *plan;              /* of the function */
    int64_t count;           /* of the operands */
    int64_t *addresses;      /* of the operands in each phase, one phase after the other, in the first turns; in a
                                sequence the number of the array that each lies in, which an address of 0 follows */
    int64_t *steps;          /* by how many bytes each moves from turn to turn, or how far from its array it begins */
};

/* Actions on arrays of one set of shapes and strides. */
struct sequence {
    void *owner;        /* the Python object that owns this memory */
    int64_t threads;    /* 0: of each action one thread is enough */
    int64_t is_free;    /* does it take so long that other Python threads may run meanwhile? */
    int64_t *signature; /* of the arrays that are checked the number of axes, the shape, the strides */
    struct action *actions;
    int64_t action_count;
    int64_t most; /* operands of an action */
};

/* What the function `follow` of a sequence knows. */
struct route {
    void *slow;       /* the Python function for arrays that do not fit */
    void *threads;    /* the Python function that tells how many threads are wanted */
    void *array_type; /* the type of arrays */
    int64_t count;    /* of the arrays */
    int64_t checked;  /* of these: the first ones; others always lie alike */
    struct sequence *recent; /* or null; replaced as a whole, never changed */
};

_Static_assert(sizeof(void *) == 8, "addresses are words");
_Static_assert(sizeof(struct part) == 11 * 8 && sizeof(struct program) == 13 * 8, "as in native.py");
_Static_assert(sizeof(struct site) == 8 * 8 && sizeof(struct action) == 6 * 8, "as in native.py");
_Static_assert(sizeof(struct sequence) == 7 * 8 && sizeof(struct route) == 6 * 8, "as in native.py");

/* pool.c: none of these touches a Python object. */
extern int64_t pool_workers;
void pool_forget(void);
void pool_grow(int64_t workers);
int run_kept(struct program *program, void **arrays);
int run_free(struct program *program, void **arrays);
int run_range(kernel_function *kernel, void *plan, int64_t count, int64_t threads);
int64_t repeat(struct action *actions, int64_t count, int64_t phases, int64_t first, int64_t last, int64_t limit,
               void **operands);
int64_t follow_kept(struct sequence *sequence, void **arrays, void **operands);
int64_t follow_free(struct sequence *sequence, int64_t first, int64_t limit, void **arrays, void **operands);

/* copies.c: the functions that kernels call, by name. */
struct copy {
    const char *name;
    void *function;
};
extern const struct copy copies[]; /* the last one has no name */
void copy_rows(void **operands, void *plan);

/* strides.c: how many of the elements `step` bytes apart it has copied, from the first on. */
int64_t gather_wide(char *buffer, const char *address, int64_t step, int64_t count, int64_t size);
int64_t scatter_wide(char *address, int64_t step, const char *buffer, int64_t count, int64_t size);

/* Of the tile, what is in whole blocks of as many rows and columns as it returns, 0: nothing. */
int64_t tile_wide(char *buffer, const char *address, int64_t step, int64_t count, int64_t across, int64_t rows,
                  int64_t pitch, int64_t size);

#endif
