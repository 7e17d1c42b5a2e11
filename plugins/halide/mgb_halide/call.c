/* Between the launcher of mgb-native, which calls a kernel by a plan, and code that Halide compiled.
 *
 * A pipeline gets buffers. Of Halide's runtime it needs memory and parallel loops, and nothing else. Whoever changes a
 * structure or function that Python knows changes it in launch.py or bridge.py and raises VERSION here and there.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <xmmintrin.h>

#define VERSION 1

/* Halide's halide_buffer_t. */
struct buffer {
    uint64_t device;
    void *interface;
    void *host;
    uint64_t flags;
    uint8_t code, bits;
    uint16_t lanes;
    int32_t dimensions;
    void *dim, *padding;
};

struct argument {
    int64_t place; /* of the array; -1: none */
    struct buffer buffer;
};

typedef int pipeline_function(void **arguments);

struct plan {
    pipeline_function *function;
    int64_t count; /* of the arguments */
    int64_t large; /* is there work for several threads? Else the caller keeps the GIL */
    int64_t past;  /* do the outputs go past the caches? */
    struct argument arguments[];
};

_Static_assert(sizeof(struct argument) == 8 * 8 && sizeof(struct plan) == 4 * 8, "as in launch.py");

/* As in launcher.h of mgb-native. */
typedef int64_t kernel_function(void **arrays, void *plan, int64_t *span);
typedef int range_function(kernel_function *kernel, void *plan, int64_t count, int64_t threads);

typedef int body_function(void *context, int32_t number, void *closure);

/* A parallel loop. */
struct loop {
    body_function *body;
    void *context;
    int32_t first;
    void *closure;
    atomic_int status; /* of a number that failed, else 0 */
};

static range_function *run_range; /* shares the numbers of a loop among the threads of mgb-native */
static PyObject *ask;             /* the Python function that tells how many threads are wanted and there */
static _Atomic int64_t threads = 1;
static alignas(64) _Atomic int64_t plain = 1; /* 0 while kernels may store past the caches; others are right as well */
static alignas(64) atomic_int inside;         /* has a parallel loop the threads? One within it is serial */

static void *halide_malloc(void *context, size_t size) {
    return aligned_alloc(128, (size + 255) & ~(size_t)127); /* code may read a vector past the end */
}

static void halide_free(void *context, void *memory) {
    free(memory);
}

/* Some numbers of a parallel loop: a kernel for `run_range`. */
static int64_t some(void **arrays, void *plan, int64_t *span) {
    struct loop *loop = plan;
    for (int64_t k = span[0]; k < span[1]; k++) {
        int status = loop->body(loop->context, loop->first + (int32_t)k, loop->closure);
        if (status)
            atomic_store(&loop->status, status);
    }
    _mm_sfence(); /* who learns that this is done sees all of it */
    return 0;
}

static int halide_do_par_for(void *context, body_function *body, int32_t first, int32_t size, void *closure) {
    if (size == 1)
        return body(context, first, closure);
    struct loop loop = {body, context, first, closure};
    int64_t wanted = threads;
    int idle = 0;
    if (wanted > 1 && size > 0 && atomic_compare_exchange_strong(&inside, &idle, 1)) {
        int failed = run_range(some, &loop, size, wanted);
        atomic_store(&inside, 0);
        if (!failed)
            return loop.status;
    } /* who lacks memory for threads needs none on this one; compiled pipelines do not look at the status */
    int64_t span[] = {0, size};
    some(NULL, &loop, span);
    return loop.status;
}

/* Each of Halide's errors, whatever its arguments. */
static int failed(void) {
    return -1;
}

/* The function of a plan that has nothing to do. */
static int nothing(void **arguments) {
    return 0;
}

/* Return how many threads are wanted. The GIL is held. One, when an exception comes instead of an answer, as that of a
 * signal does: the kernel is done first, then the function that was called by Python raises it. */
static int64_t wanted(void) {
    PyObject *answer = PyErr_Occurred() ? NULL : PyObject_CallNoArgs(ask);
    if (answer == NULL)
        return 1;
    long number = PyLong_AsLong(answer);
    Py_DECREF(answer);
    return number;
}

/* Fill in buffers of the arrays, and their addresses, for one call by a plan. */
static inline void fill(void **arrays, const struct plan *plan, struct buffer *buffers, void **pointers) {
    for (int64_t k = 0; k < plan->count; k++) {
        const struct argument *argument = &plan->arguments[k];
        buffers[k] = argument->buffer;
        pointers[k] = &buffers[k];
        if (argument->place >= 0)
            buffers[k].host = arrays[argument->place];
    }
}

/* A kernel that shares the threads with others: it runs on one. The GIL is not held. */
static int64_t together(void **arrays, void *given, int64_t *span) {
    const struct plan *plan = given;
    struct buffer buffers[plan->count + 1];
    void *pointers[plan->count + 1];
    fill(arrays, plan, buffers, pointers);
    plan->function(pointers);
    return 0;
}

/* Run a pipeline on as many threads as are wanted, without the GIL. */
static int run_large(pipeline_function *function, void **pointers) {
    threads = wanted();
    PyThreadState *state = PyEval_SaveThread();
    int status = function(pointers);
    PyEval_RestoreThread(state);
    return status;
}

/* The kernel that a plan names: call the pipeline with buffers of the arrays. The GIL is held. */
static int64_t call(void **arrays, void *given, int64_t *span) {
    const struct plan *plan = given;
    struct buffer buffers[plan->count + 1];
    void *pointers[plan->count + 1];
    bool past = plan->past;
    int status;
    fill(arrays, plan, buffers, pointers);
    if (past)
        atomic_store_explicit(&plain, 0, memory_order_relaxed);
    if (plan->large) {
        status = run_large(plan->function, pointers);
    } else {
        atomic_store_explicit(&threads, 1, memory_order_relaxed);
        status = plan->function(pointers);
    }
    _mm_sfence(); /* another call may have had this one store past the caches */
    if (past)
        atomic_store_explicit(&plain, 1, memory_order_relaxed);
    if (status) /* Halide has an error for nothing else here than for memory that it did not get */
        PyErr_NoMemory();
    return 0;
}

static PyObject *py_bind(PyObject *module, PyObject *args) {
    PyObject *address, *function;
    if (!PyArg_ParseTuple(args, "OO", &address, &function))
        return NULL;
    run_range = (range_function *)PyLong_AsVoidPtr(address);
    if (PyErr_Occurred())
        return NULL;
    PyObject *before = ask;
    ask = Py_NewRef(function);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static PyObject *py_forget(PyObject *module, PyObject *unused) {
    atomic_store(&inside, 0);
    atomic_store(&plain, 1);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"bind", py_bind, METH_VARARGS,
     "bind(run_range, threads)\n--\n\nTake an address of mgb-native, and a function that tells how many threads to use."},
    {"forget", py_forget, METH_NOARGS, "forget()\n--\n\nForget the loop that runs: in a child process there is none."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_call", .m_size = -1, .m_methods = methods,
    .m_doc = "Calls of Halide's pipelines by the launcher of mgb-native; see mgb_halide.bridge."};

/* What Python and pipelines want the addresses of. */
static const struct {
    const char *name;
    void *address;
} names[] = {
    {"call", call}, {"together", together}, {"nothing", nothing}, {"failed", failed}, {"mgb_plain", &plain},
    {"halide_malloc", halide_malloc}, {"halide_free", halide_free}, {"halide_do_par_for", halide_do_par_for},
};

PyMODINIT_FUNC PyInit__call(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || PyModule_AddIntConstant(module, "VERSION", VERSION))
        goto failed;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (PyModule_AddObject(module, names[k].name, PyLong_FromVoidPtr(names[k].address)))
            goto failed;
    return module;
failed:
    Py_XDECREF(module);
    return NULL;
}
