/*
 * A stand-in for libnvidia-ml.so.1, for tests on machines without a GPU.
 *
 * NVIDIA's own Python bindings load it and do not know the difference. The machine that it shows is in a file
 * (NVML_STANDIN_STATE), which is mapped into every process that loads it, so that several commands see one
 * machine. Functions that begin with `standin_` are for tests: they change the machine.
 *
 * Only the calls that gpuplan and its tests use are exported; the bindings report any other one as
 * FunctionNotFound, as they do with an old driver. Structures have the layout of NVIDIA's nvml.h.
 */
#ifndef MACHINE_H
#define MACHINE_H

#define API __attribute__((visibility("default")))

/* Return codes of NVML. */
enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    IN_USE = 19,
    INSUFFICIENT_RESOURCES = 23,
    VERSION_MISMATCH = 25,
    UNKNOWN_ERROR = 999,
};

enum {
    MOST_GPUS = 16,
    MOST_INSTANCES = 8,
    MOST_PROCESSES = 32,
    MOST_FAILURES = 64,
    MOST_EVENTS = 16,
    MOST_PROFILES = 8,
    LINKS = 18,
    NO_INSTANCE = -1,
};

/* A MIG profile as `nvidia-smi mig -lgip` and `-lgipp` print it; `which` is NVML's constant for it. */
typedef struct {
    int which, id, compute_slices, most, processors, copy_engines, memory_mib, memory_slices;
    int starts[8]; /* ends with -1 if there are fewer */
    const char *name;
} Profile;

/* What all GPUs of one model have in common; `profiles` is empty for a model without MIG. */
typedef struct {
    const char *name;
    int memory_mib, watts, slowdown, has_ecc, links;
    Profile profiles[MOST_PROFILES];
} Model;

/* A GPU instance with its only compute instance. */
typedef struct {
    int used, id, profile, start, has_compute;
} Instance;

typedef struct {
    int pid, instance; /* `instance` is the id of a GPU instance, or NO_INSTANCE */
    long long bytes;
} Process;

/* Numbers of a GPU that tests may set by their names. */
#define GPU_NUMBERS(X)                                                                                       \
    X(model) X(lost) X(mig) X(mig_pending) X(temperature) X(utilization) X(milliwatts) X(clock_reasons)      \
    X(ecc_uncorrected) X(rows_pending) X(rows_failed) X(links_down) X(link_to) X(numa) X(clique)     \
    X(hidden_mib)

typedef struct {
#define NUMBER(name) long long name;
    GPU_NUMBERS(NUMBER)
#undef NUMBER
    int next_instance, processes;
    Instance instances[MOST_INSTANCES];
    Process process[MOST_PROCESSES];
} Gpu;

typedef struct {
    char call[64];
    int gpu; /* -1: of every GPU, and calls about none */
    int code;
} Failure;

typedef struct {
    int gpu;
    long long xid;
} Event;

typedef struct {
    int gpus, failures, events;
    Gpu gpu[MOST_GPUS];
    Failure failure[MOST_FAILURES];
    Event event[MOST_EVENTS];
} Machine;

/* Handles are numbers: GPUs from 0x1000, MIG instances (as GPU instance, compute instance and device) from
 * 0x2000. */
typedef struct {
    int gpu, instance; /* `instance` is a position in `Gpu.instances`, or NO_INSTANCE */
} Part;

extern Machine *machine;
extern const Model MODELS[];

int locked(void);   /* takes the lock of the machine's file; always true */
int unlocked(void); /* gives it back; always true */

Part part_of(void *handle);
void *handle_of(int gpu, int instance);
const Profile *profile_by_id(const Model *model, unsigned id);
int failure_of(const char *call, int gpu);

/* The GPU of a handle, or the end of the call with its error. */
#define FIND_GPU(handle)                                                                                     \
    Part part = part_of(handle);                                                                             \
    if (part.gpu < 0) return INVALID_ARGUMENT;                                                               \
    int failed = failure_of(__func__, part.gpu);                                                             \
    if (failed) return failed;                                                                               \
    Gpu *gpu = &machine->gpu[part.gpu];                                                                      \
    const Model *model = &MODELS[gpu->model];                                                                \
    (void)gpu, (void)model

#endif
