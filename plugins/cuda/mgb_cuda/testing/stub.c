/* A CUDA driver that does nothing but take notes: what was loaded, and the last launches with all their
 * parameters. It proves what reaches a driver, never a result. No header of CUDA is needed. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
#define API __attribute__((visibility("default")))
enum { SUCCESS = 0, NOT_FOUND = 500, MOST = 64, PARAMETERS = 4096 };

typedef struct {
    char name[64];
    unsigned grid[3], block[3], shared;
    u64 stream;
    unsigned char parameters[PARAMETERS];
} Launch;

static Launch launches[MOST];
static char kernels[MOST][64];
static int kernel_count, parameter_bytes, fails, version = 13000, capability = 90, devices = 1;
static long launch_count, library_count, unloaded;

/* what a test asks and sets */
API long stub_launches(void) { return launch_count; }
API long stub_libraries(void) { return library_count; }
API const Launch *stub_launch(long i) { return &launches[i % MOST]; }
API void stub_parameter_bytes(int n) { parameter_bytes = n; }
API void stub_fail(int status) { fails = status; }
API void stub_version(int n) { version = n; }
API void stub_capability(int n) { capability = n; }
API void stub_devices(int n) { devices = n; }
API void stub_forget(void) { launch_count = 0; }

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
        default: *value = 1024;
    }
    return SUCCESS;
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
API int cuLibraryUnload(void *library) { return unloaded++, SUCCESS; }

API int cuLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned shared, void *stream, void **parameters, void **extra) {
    Launch *note = &launches[launch_count % MOST];
    *note = (Launch){.grid = {gx, gy, gz}, .block = {bx, by, bz}, .shared = shared, .stream = (u64)stream};
    if (parameter_bytes) memcpy(note->parameters, parameters[0], parameter_bytes);
    memcpy(note->name, kernel, sizeof note->name - 1);
    launch_count++;
    return fails;
}

API int cuGetExportTable(const void **table, const void *id) { return *table = NULL, NOT_FOUND; }

static int nothing(void) { return SUCCESS; }

/* The bindings ask for every function they know; those that nobody calls here are all the same one. */
API int cuGetProcAddress_v2(const char *name, void **found, int v, u64 flags, int *result) {
    void *self = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    *found = !strcmp(name, "cuGetProcAddress") ? (void *)cuGetProcAddress_v2 : self ? dlsym(self, name) : NULL;
    if (!*found) *found = (void *)nothing;
    if (result) *result = 0;
    return SUCCESS;
}
API int cuGetProcAddress(const char *name, void **found, int v, u64 flags) {
    return cuGetProcAddress_v2(name, found, v, flags, NULL);
}
