/* How Python calls kernels: the functions `run` of a launcher and `follow` of a sequence, and what it asks of the pool.
 *
 * A call finds the program for its arrays among a few recent ones and runs it, in some 100 ns without a Python
 * object but its arguments. All else is for the Python function `slow` of the launcher. The interface of CPython is
 * the stable one of 3.11, so that one library serves all versions from there on.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <numpy/ndarraytypes.h>

#include "launcher.h"

_Static_assert(sizeof(npy_intp) == sizeof(int64_t), "signatures are compared word by word");

/* What the attempts to run a program come to. */
enum status { DONE, NO_MEMORY, UNFIT };

static PyArrayObject *array(void *object) {
    return object;
}

/* Are the `count` objects of `list` arrays of the shapes and strides of `signature`? */
static bool agree(void **list, int64_t count, const int64_t *signature, void *type) {
    for (int64_t i = 0; i < count; i++) {
        if ((void *)Py_TYPE(list[i]) != type)
            return false;
        int64_t ndim = PyArray_NDIM(array(list[i]));
        const npy_intp *shape = PyArray_DIMS(array(list[i])), *strides = PyArray_STRIDES(array(list[i]));
        if (*signature++ != ndim)
            return false;
        for (int64_t axis = 0; axis < ndim; axis++)
            if (shape[axis] != signature[axis] || strides[axis] != signature[ndim + axis])
                return false;
        signature += 2 * ndim;
    }
    return true;
}

/* Does a pair of hazards begin at the same address? */
static bool endangered(void **list, const struct program *program) {
    for (int64_t k = 0; k < program->hazard_count; k++) {
        const int64_t *pair = program->hazards[k];
        if (PyArray_DATA(array(list[pair[0]])) == PyArray_DATA(array(list[pair[1]])))
            return true;
    }
    return false;
}

/* Are as many threads wanted as a program is for, and are there as many? Not so when an exception came instead of an
 * answer: that of a signal must not be lost. */
static bool suits(void *counter, int64_t threads) {
    if (threads == 0)
        return true;
    PyObject *function = Py_NewRef(counter), *answer = PyObject_CallNoArgs(function);
    Py_DECREF(function);
    if (answer == NULL)
        return false;
    long wanted = PyLong_AsLong(answer);
    Py_DECREF(answer);
    return wanted == threads && pool_workers + 1 >= threads;
}

/* Run a program, which the caller keeps alive, on arrays: the inputs, outputs and constants. The GIL is held.
 *
 * Kernels get the addresses of the data. Had workers to read the array objects, whose references Python counts before
 * and after, hundreds of cache lines would travel between the cores. */
static enum status launch(struct program *program, void **list) {
    void *arrays[program->operand_count + 1];
    for (int64_t k = 0; k < program->operand_count; k++)
        arrays[k] = PyArray_DATA(array(list[program->operands[k]]));
    if (program->threads == 0)
        return run_kept(program, arrays) ? NO_MEMORY : DONE;
    PyThreadState *state = PyEval_SaveThread();
    int failed = run_free(program, arrays);
    PyEval_RestoreThread(state);
    return failed ? NO_MEMORY : DONE;
}

/* Run the first program that fits the list. */
static enum status find(const struct site *site, void **list, int64_t count) {
    for (struct program **recent = site->recent; *recent != NULL; recent++) {
        struct program *program = *recent;
        if (!agree(list, count, program->signature, site->array_type))
            continue;
        if (endangered(list, program))
            return UNFIT;
        /* From here on another thread may change the list of programs. */
        PyObject *owner = Py_NewRef(program->owner);
        enum status status = suits(site->threads, program->threads) ? launch(program, list) : UNFIT;
        Py_DECREF(owner);
        return status;
    }
    return UNFIT;
}

/* Call the Python function that `run` is short for. */
static PyObject *call_slow(PyObject *slow, PyObject *const *args, Py_ssize_t given, PyObject *names) {
    Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    PyObject *values = PyTuple_New(given), *keywords = PyDict_New(), *answer = NULL;
    if (values == NULL || keywords == NULL)
        goto done;
    for (Py_ssize_t k = 0; k < given; k++)
        PyTuple_SetItem(values, k, Py_NewRef(args[k]));
    for (Py_ssize_t k = 0; k < named; k++)
        if (PyDict_SetItem(keywords, PyTuple_GetItem(names, k), args[given + k]))
            goto done;
    answer = PyObject_Call(slow, values, keywords);
done:
    Py_XDECREF(values);
    Py_XDECREF(keywords);
    return answer;
}

/* run(*inputs, out=outputs). `self` is an array whose data is the site. */
static PyObject *run(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *names) {
    const struct site *site = PyArray_DATA(array(self));
    PyObject *slow = site->slow;
    if (given != site->inputs || names == NULL || PyTuple_Size(names) != 1)
        return call_slow(slow, args, given, names);
    PyObject *out = args[given];
    if (!PyTuple_CheckExact(out) || PyTuple_Size(out) != site->outputs)
        return call_slow(slow, args, given, names);
    int64_t count = site->inputs + site->outputs;
    void *list[count + site->constant_count + 1];
    memcpy(list, args, sizeof(void *) * site->inputs);
    for (int64_t k = 0; k < site->outputs; k++)
        list[site->inputs + k] = PyTuple_GetItem(out, k);
    memcpy(list + count, site->constants, sizeof(void *) * site->constant_count);
    enum status status = find(site, list, count);
    if (PyErr_Occurred()) /* instead of the number of threads, or by a kernel that called Python */
        return NULL;
    if (status == NO_MEMORY)
        return PyErr_NoMemory();
    return status == DONE ? Py_NewRef(Py_None) : call_slow(slow, args, given, names);
}

static PyMethodDef run_method = {
    "run", (PyCFunction)(void (*)(void))run, METH_FASTCALL | METH_KEYWORDS,
    "run(*inputs, out)\n--\n\nFill the arrays in the tuple `out`."};

static PyObject *py_function(PyObject *module, PyObject *site) {
    return PyCFunction_NewEx(&run_method, site, NULL);
}

/* Nanoseconds after which a sequence looks for signals. */
enum { LIMIT = 50000000 };

/* Do a sequence, which the caller keeps alive, on these arrays; the GIL is held. Return 0, or -1 with an exception. */
static int follow_all(struct sequence *sequence, int64_t count, void **list) {
    void *arrays[count + 1], *operands[sequence->most + 1];
    for (int64_t k = 0; k < count; k++)
        arrays[k] = PyArray_DATA(array(list[k]));
    arrays[count] = NULL; /* what lies at known addresses */
    int64_t next = sequence->is_free ? 0 : follow_kept(sequence, arrays, operands);
    while (next >= 0 && next < sequence->action_count) {
        PyThreadState *state = PyEval_SaveThread();
        next = follow_free(sequence, next, LIMIT, arrays, operands);
        PyEval_RestoreThread(state);
        if (PyErr_CheckSignals())
            return -1;
    }
    if (next < 0)
        PyErr_NoMemory();
    return PyErr_Occurred() ? -1 : 0;
}

/* follow(*arrays). `self` is an array whose data is the route. */
static PyObject *follow(PyObject *self, PyObject *const *args, Py_ssize_t given) {
    const struct route *route = PyArray_DATA(array(self));
    struct sequence *sequence = route->recent;
    void **list = (void **)args;
    if (sequence == NULL || given != route->count ||
        !agree(list, route->checked, sequence->signature, route->array_type))
        return call_slow(route->slow, args, given, NULL);
    PyObject *owner = Py_NewRef(sequence->owner), *answer = NULL; /* another thread may change the route from here on */
    if (suits(route->threads, sequence->threads))
        answer = follow_all(sequence, given, list) ? NULL : Py_NewRef(Py_None);
    else if (!PyErr_Occurred())
        answer = call_slow(route->slow, args, given, NULL);
    Py_DECREF(owner);
    return answer;
}

static PyMethodDef follow_method = {
    "follow", (PyCFunction)(void (*)(void))follow, METH_FASTCALL,
    "follow(*arrays)\n--\n\nDo what the sequence does with these arrays."};

static PyObject *py_follower(PyObject *module, PyObject *route) {
    return PyCFunction_NewEx(&follow_method, route, NULL);
}

static PyObject *py_follow(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    if (given < 1)
        return PyErr_Format(PyExc_TypeError, "follow takes the address of a sequence, then arrays");
    struct sequence *sequence = PyLong_AsVoidPtr(args[0]);
    if (sequence == NULL && PyErr_Occurred())
        return NULL;
    return follow_all(sequence, given - 1, (void **)args + 1) ? NULL : Py_NewRef(Py_None);
}

static PyObject *py_launch(PyObject *module, PyObject *const *args, Py_ssize_t given) {
    if (given < 1)
        return PyErr_Format(PyExc_TypeError, "launch takes the address of a program, then arrays");
    struct program *program = PyLong_AsVoidPtr(args[0]);
    if (program == NULL && PyErr_Occurred())
        return NULL;
    enum status status = launch(program, (void **)args + 1);
    if (PyErr_Occurred()) /* by a kernel that called Python */
        return NULL;
    return status == DONE ? Py_NewRef(Py_None) : PyErr_NoMemory();
}

static PyObject *py_repeat(PyObject *module, PyObject *args) {
    long long actions, count, phases, first, last, limit, operands;
    if (!PyArg_ParseTuple(args, "LLLLLLL", &actions, &count, &phases, &first, &last, &limit, &operands))
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    int64_t next =
        repeat((struct action *)actions, count, phases, first, last, limit, (void **)operands);
    PyEval_RestoreThread(state);
    return next < 0 ? PyErr_NoMemory() : PyLong_FromLongLong(next);
}

static PyObject *py_grow(PyObject *module, PyObject *workers) {
    long count = PyLong_AsLong(workers);
    if (count == -1 && PyErr_Occurred())
        return NULL;
    pool_grow(count);
    Py_RETURN_NONE;
}

static PyObject *py_workers(PyObject *module, PyObject *unused) {
    return PyLong_FromLongLong(pool_workers);
}

static PyObject *py_forget(PyObject *module, PyObject *unused) {
    pool_forget();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"function", py_function, METH_O,
     "function(site)\n--\n\nReturn the function run(*inputs, out) of the site that is the data of an array."},
    {"follower", py_follower, METH_O,
     "follower(route)\n--\n\nReturn the function follow(*arrays) of the route that is the data of an array."},
    {"follow", (PyCFunction)(void (*)(void))py_follow, METH_FASTCALL,
     "follow(sequence, *arrays)\n--\n\nDo the sequence at an address on arrays."},
    {"launch", (PyCFunction)(void (*)(void))py_launch, METH_FASTCALL,
     "launch(program, *arrays)\n--\n\nRun the program at an address on inputs, outputs and constants."},
    {"repeat", py_repeat, METH_VARARGS,
     "repeat(actions, count, phases, first, last, limit, operands)\n--\n\n"
     "Do turns of a loop for some time; return the turn that comes next."},
    {"grow", py_grow, METH_O, "grow(workers)\n--\n\nHave at least so many threads beside the callers."},
    {"workers", py_workers, METH_NOARGS, "workers()\n--\n\nReturn the number of threads beside the callers."},
    {"forget", py_forget, METH_NOARGS, "forget()\n--\n\nForget the threads: a child process has none."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_launcher", .m_size = -1, .m_methods = methods,
    .m_doc = "Calls of kernels and the threads that take parts of them; see mgb_native.native."};

/* Add the addresses of the functions that kernels, loops and other libraries call. */
static int add_addresses(PyObject *module) {
    PyObject *table = PyDict_New();
    if (table == NULL)
        return -1;
    for (const struct copy *copy = copies; copy->name != NULL; copy++) {
        PyObject *address = PyLong_FromVoidPtr(copy->function);
        if (address == NULL || PyDict_SetItemString(table, copy->name, address)) {
            Py_XDECREF(address);
            Py_DECREF(table);
            return -1;
        }
        Py_DECREF(address);
    }
    int failed = PyModule_AddObjectRef(module, "copies", table);
    Py_DECREF(table);
    return failed || PyModule_AddObject(module, "copy_rows", PyLong_FromVoidPtr(copy_rows)) ||
           PyModule_AddObject(module, "run_range", PyLong_FromVoidPtr(run_range)) ||
           PyModule_AddIntConstant(module, "VERSION", VERSION);
}

PyMODINIT_FUNC PyInit__launcher(void) {
    PyObject *module = PyModule_Create(&definition);
    pool_forget();
    if (module != NULL && add_addresses(module)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
