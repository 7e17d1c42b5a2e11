/* A CUDA driver that does nothing but take notes: what was loaded, and the last launches with all their
 * parameters. It proves what reaches a driver, never a result. A context is current in one thread alone, and
 * what needs one is refused where there is none; the default stream of each thread has one handle in all of
 * them and is another stream in each. No header of CUDA is needed. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
#define API __attribute__((visibility("default")))
enum { SUCCESS = 0, INVALID_CONTEXT = 201, NOT_FOUND = 500, MOST = 64, PARAMETERS = 4096, PER_THREAD = 2 };

typedef struct {
    char name[64];
    unsigned grid[3], block[3], shared;
    u64 stream;
    unsigned char *parameters; /* PARAMETERS bytes at least, where they are watched */
    int graph; /* the number of the graph that it is a node of; 0: it was launched by itself */
    int thread; /* whose default stream it went to, by a number of the thread; 0: to no such stream */
    u64 context;
} Launch;

/* as the driver declares it */
typedef struct {
    void *function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra;
    void *kernel, *context;
} NodeParameters;

typedef struct Node {
    Launch launch;
    int before, done; /* the number of the node that it waits for; -1: none */
} Node;

typedef struct {
    Node nodes[MOST];
    int count, number;
} Graph;

static __thread u64 current; /* the context of this thread; 0: none */
static __thread int thread; /* its number, when it has launched something on its default stream */
static int threads, retained;
static Launch launches[MOST];
static char kernels[MOST][64];
static int kernel_count, parameter_bytes, fails, version = 13000, capability = 90, devices = 1;
static int capturing, refused_graphs, graph_number;
static long launch_count, library_count, unloaded, updates, graph_launches, live_graphs;

/* what a test asks and sets */
API long stub_launches(void) { return launch_count; }
API long stub_libraries(void) { return library_count; }
API const Launch *stub_launch(long i) { return &launches[i % MOST]; }
API void stub_parameter_bytes(int n) { parameter_bytes = n; }
API void stub_fail(int status) { fails = status; }
API void stub_version(int n) { version = n; }
API void stub_capability(int n) { capability = n; }
API void stub_devices(int n) { devices = n; }
API void stub_forget(void) { launch_count = updates = graph_launches = 0; }
API void stub_capture(int status) { capturing = status; }
API void stub_refuse_graphs(int status) { refused_graphs = status; }
API long stub_updates(void) { return updates; }
API long stub_graph_launches(void) { return graph_launches; }
API long stub_live_graphs(void) { return live_graphs; }
API int stub_retained(void) { return retained; }

static int most(const char *variable, int otherwise) {
    const char *text = getenv(variable);
    return text ? atoi(text) : otherwise;
}

API int cuInit(unsigned flags) {
    const char *text = getenv("MGB_STUB_VERSION");
    if (text) version = atoi(text);
    text = getenv("MGB_STUB_DEVICES");
    if (text) devices = atoi(text);
    text = getenv("MGB_STUB_CAPABILITY");
    if (text) capability = atoi(text);
    return SUCCESS;
}
API int cuDriverGetVersion(int *found) { return *found = version, SUCCESS; }
API int cuDeviceGetCount(int *found) { return *found = devices, SUCCESS; }
API int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, SUCCESS; }
API int cuDeviceGetName(char *name, int length, int device) { return snprintf(name, length, "stub"), SUCCESS; }
API int cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
        case 75: *value = capability / 10; break;
        case 76: *value = capability % 10; break;
        case 16: *value = 132; break;
        case 8: *value = 48 << 10; break;
        case 97: *value = most("MGB_STUB_SHARED", 227 << 10); break;
        default: *value = 1024;
    }
    return SUCCESS;
}

/* contexts: the handle of a primary one is 0x7000 and the number of its device */
API int cuCtxGetCurrent(u64 *context) { return *context = current, SUCCESS; }
API int cuCtxSetCurrent(u64 context) { return current = context, SUCCESS; }
API int cuDevicePrimaryCtxRetain(u64 *context, int device) {
    __atomic_fetch_add(&retained, 1, __ATOMIC_SEQ_CST);
    return *context = 0x7000 + device, SUCCESS;
}
API int cuEventCreate(void **event, unsigned flags) {
    return *event = (void *)0x8000, current ? SUCCESS : INVALID_CONTEXT;
}

API int cuGetErrorString(int status, const char **text) { return *text = "the stub was told to fail", SUCCESS; }
API int cuGetErrorName(int status, const char **text) { return *text = "STUB", SUCCESS; }

API int cuLibraryLoadData(void **library, const void *code, void *a, void *b, unsigned c, void *d, void *e,
                          unsigned f) {
    library_count++;
    *library = (void *)0x4000;
    return memcmp(code, "\177ELF", 4) && memcmp(code, "\n//", 3) && memcmp(code, "//", 2) ? 200 : fails;
}
API int cuLibraryGetKernel(void **kernel, void *library, const char *name) {
    if (kernel_count == MOST) kernel_count = 0;
    snprintf(kernels[kernel_count], sizeof kernels[0], "%s", name);
    *kernel = kernels[kernel_count++];
    return SUCCESS;
}
API int cuKernelGetAttribute(int *value, int attribute, void *kernel, int device) {
    return *value = attribute ? 0 : most("MGB_STUB_THREADS", 1024), SUCCESS;
}
API int cuLibraryUnload(void *library) { return unloaded++, SUCCESS; }

static Launch noted(const char *kernel, const unsigned *grid, const unsigned *block, unsigned shared,
                    void **parameters) {
    Launch note = {.grid = {grid[0], grid[1], grid[2]}, .block = {block[0], block[1], block[2]}, .shared = shared};
    if (parameter_bytes) {
        note.parameters = calloc(1, parameter_bytes > PARAMETERS ? parameter_bytes : PARAMETERS);
        memcpy(note.parameters, parameters[0], parameter_bytes);
    }
    memcpy(note.name, kernel, sizeof note.name - 1);
    return note;
}

static void launched(Launch note, void *stream) { /* threads may be here at the same time */
    if ((u64)stream == PER_THREAD && !thread) thread = __atomic_add_fetch(&threads, 1, __ATOMIC_SEQ_CST);
    note.stream = (u64)stream;
    note.thread = (u64)stream == PER_THREAD ? thread : 0;
    note.context = current;
    launches[__atomic_fetch_add(&launch_count, 1, __ATOMIC_SEQ_CST) % MOST] = note;
}

API int cuLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned shared, void *stream, void **parameters, void **extra) {
    const unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
    if (!current) return INVALID_CONTEXT;
    launched(noted(kernel, grid, block, shared, parameters), stream);
    return fails;
}

/* graphs: nodes are copied when a graph is made ready, and run in the last order that what they wait for allows */
API int cuStreamIsCapturing(void *stream, int *status) {
    return *status = capturing, current ? SUCCESS : INVALID_CONTEXT;
}
API int cuGraphCreate(Graph **graph, unsigned flags) {
    *graph = calloc(1, sizeof **graph);
    return __atomic_fetch_add(&live_graphs, 1, __ATOMIC_SEQ_CST), refused_graphs;
}
static Launch of_node(const NodeParameters *given) {
    return noted(given->function ? given->function : given->kernel, given->grid, given->block, given->shared,
                 given->parameters);
}
API int cuGraphAddKernelNode(u64 *node, Graph *graph, const u64 *before, size_t count, const NodeParameters *given) {
    if (!current) return INVALID_CONTEXT;
    if (count > 1 || graph->count == MOST) return 1;
    graph->nodes[graph->count] = (Node){of_node(given), count ? (int)before[0] - 1 : -1, 0};
    *node = ++graph->count;
    return SUCCESS;
}
API int cuGraphInstantiateWithFlags(Graph **ready, const Graph *graph, u64 flags) {
    if (!current) return INVALID_CONTEXT;
    *ready = malloc(sizeof **ready);
    **ready = *graph;
    (*ready)->number = __atomic_add_fetch(&graph_number, 1, __ATOMIC_SEQ_CST);
    return __atomic_fetch_add(&live_graphs, 1, __ATOMIC_SEQ_CST), SUCCESS;
}
API int cuGraphExecKernelNodeSetParams(Graph *ready, u64 node, const NodeParameters *given) {
    if (!current) return INVALID_CONTEXT;
    ready->nodes[node - 1].launch = of_node(given);
    return updates++, fails;
}
API int cuGraphLaunch(Graph *ready, void *stream) {
    if (!current) return INVALID_CONTEXT;
    __atomic_fetch_add(&graph_launches, 1, __ATOMIC_SEQ_CST);
    for (int n = 0; n < ready->count; n++) ready->nodes[n].done = 0;
    for (int round = 0; round < ready->count; round++)
        for (int n = ready->count - 1; n >= 0; n--) {
            Node *node = &ready->nodes[n];
            if (node->done || (node->before >= 0 && !ready->nodes[node->before].done)) continue;
            node->done = 1;
            node->launch.graph = ready->number;
            launched(node->launch, stream);
            break;
        }
    return fails;
}
API int cuGraphDestroy(Graph *graph) { return free(graph), __atomic_sub_fetch(&live_graphs, 1, __ATOMIC_SEQ_CST), SUCCESS; }
API int cuGraphExecDestroy(Graph *ready) { return free(ready), __atomic_sub_fetch(&live_graphs, 1, __ATOMIC_SEQ_CST), SUCCESS; }

API int cuGetExportTable(const void **table, const void *id) { return *table = NULL, NOT_FOUND; }

static int nothing(void) { return SUCCESS; }

/* The bindings ask for every function they know; those that nobody calls here are all the same one. A test may
 * name one that this driver lacks. */
API int cuGetProcAddress_v2(const char *name, void **found, int v, u64 flags, int *result) {
    const char *lacking = getenv("MGB_STUB_LACKS");
    if (lacking && !strcmp(name, lacking)) {
        if (result) *result = 1;
        return *found = NULL, NOT_FOUND;
    }
    void *self = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    *found = !strcmp(name, "cuGetProcAddress") ? (void *)cuGetProcAddress_v2 : self ? dlsym(self, name) : NULL;
    if (!*found) *found = (void *)nothing;
    if (result) *result = 0;
    return SUCCESS;
}
API int cuGetProcAddress(const char *name, void **found, int v, u64 flags) {
    return cuGetProcAddress_v2(name, found, v, flags, NULL);
}
