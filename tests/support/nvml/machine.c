/* The machine's state: models of GPUs, the shared file, failures, and what tests change. */
#define _GNU_SOURCE
#include "machine.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

Machine *machine;
static int file = -1;
static int users; /* calls of nvmlInit without a call of nvmlShutdown */

#define ANYWHERE {0, 1, 2, 3, 4, 5, 6, -1}

const Model MODELS[] = {
    {"NVIDIA H100 80GB HBM3", 81559, 700, 90, 1, LINKS,
     {{0, 19, 1, 7, 16, 1, 9984, 1, ANYWHERE, "MIG 1g.10gb"},
      {7, 20, 1, 1, 16, 1, 9984, 1, ANYWHERE, "MIG 1g.10gb+me"},
      {9, 15, 1, 4, 26, 1, 20096, 2, {0, 2, 4, 6, -1}, "MIG 1g.20gb"},
      {1, 14, 2, 3, 32, 2, 20096, 2, {0, 2, 4, -1}, "MIG 2g.20gb"},
      {2, 9, 3, 2, 60, 3, 40448, 4, {0, 4, -1}, "MIG 3g.40gb"},
      {3, 5, 4, 1, 64, 4, 40448, 4, {0, -1}, "MIG 4g.40gb"},
      {4, 0, 7, 1, 132, 8, 81152, 8, {0, -1}, "MIG 7g.80gb"}}},
    {"NVIDIA A30", 24576, 165, 92, 1, 4,
     {{0, 14, 1, 4, 14, 1, 5952, 1, {0, 1, 2, 3, -1}, "MIG 1g.6gb"},
      {7, 21, 1, 1, 14, 1, 5952, 1, {0, 1, 2, 3, -1}, "MIG 1g.6gb+me"},
      {1, 5, 2, 2, 28, 2, 12032, 2, {0, 2, -1}, "MIG 2g.12gb"},
      {8, 6, 2, 1, 28, 2, 12032, 2, {0, 2, -1}, "MIG 2g.12gb+me"},
      {3, 0, 4, 1, 56, 4, 24192, 4, {0, -1}, "MIG 4g.24gb"}}},
    {"NVIDIA GeForce RTX 4090", 24564, 450, 98, 0, 0, {{0}}},
    /* A model of which gpuplan knows no slices. */
    {"NVIDIA Z9 96GB", 97887, 600, 90, 1, 0, {{0, 14, 1, 4, 46, 1, 24192, 1, {0, 1, 2, 3, -1}, "MIG 1g.24gb"}}},
};

int locked(void) { return flock(file, LOCK_EX), 1; }
int unlocked(void) { return flock(file, LOCK_UN), 1; }

Part part_of(void *handle) {
    long number = (long)handle;
    Part none = {-1, NO_INSTANCE};
    if (!users) return none;
    if (number >= 0x1000 && number < 0x1000 + machine->gpus) return (Part){number - 0x1000, NO_INSTANCE};
    if (number < 0x2000 || number >= 0x2000 + MOST_GPUS * MOST_INSTANCES) return none;
    Part part = {(number - 0x2000) / MOST_INSTANCES, (number - 0x2000) % MOST_INSTANCES};
    return machine->gpu[part.gpu].instances[part.instance].used ? part : none;
}

void *handle_of(int gpu, int instance) {
    long number = instance == NO_INSTANCE ? 0x1000 + gpu : 0x2000 + gpu * MOST_INSTANCES + instance;
    return (void *)number;
}

const Profile *profile_by_id(const Model *model, unsigned id) {
    for (int at = 0; at < MOST_PROFILES && model->profiles[at].name; at++)
        if (model->profiles[at].id == (int)id) return &model->profiles[at];
    return NULL;
}

int failure_of(const char *call, int gpu) {
    if (gpu >= 0 && machine->gpu[gpu].lost) return GPU_IS_LOST;
    for (int at = 0; at < machine->failures; at++) {
        Failure *each = &machine->failure[at];
        if (!strcmp(each->call, call) && (each->gpu < 0 || each->gpu == gpu)) return each->code;
    }
    return SUCCESS;
}

/* Map the file of the environment; a changed environment in the same process means another machine. */
static int opened(void) {
    static char mapped[4096];
    const char *path = getenv("NVML_STANDIN_STATE");
    if (!path) return 0;
    if (machine && !strcmp(path, mapped)) return 1;
    if (machine) munmap(machine, sizeof(Machine)), close(file);
    file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(Machine))) return 0;
    machine = mmap(NULL, sizeof(Machine), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    snprintf(mapped, sizeof mapped, "%s", path);
    return 1;
}

API int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (!opened()) return UNKNOWN_ERROR;
    int failed = failure_of(__func__, -1);
    if (!failed) users++;
    return failed;
}

API int nvmlShutdown(void) {
    if (!users) return UNINITIALIZED;
    users--;
    return SUCCESS;
}

API const char *nvmlErrorString(int code) {
    switch (code) {
    case NOT_SUPPORTED: return "Not Supported";
    case GPU_IS_LOST: return "GPU is lost";
    case IN_USE: return "In use by another client";
    case INSUFFICIENT_RESOURCES: return "Insufficient Resources";
    }
    return "Unknown Error";
}

/* What tests change. */

API int standin_create(unsigned gpus, unsigned model) {
    if (!opened() || gpus > MOST_GPUS) return INVALID_ARGUMENT;
    locked();
    memset(machine, 0, sizeof *machine);
    machine->gpus = gpus;
    for (unsigned at = 0; at < gpus; at++) {
        Gpu *gpu = &machine->gpu[at];
        gpu->model = model;
        gpu->temperature = 35;
        gpu->milliwatts = 70000;
        gpu->link_to = -1;              /* a switch */
        gpu->clique = -1;               /* none */
        gpu->numa = at >= gpus / 2;     /* two sockets */
        gpu->next_instance = 1;
    }
    unlocked();
    return SUCCESS;
}

API int standin_set(unsigned gpu, const char *name, long long value) {
    static const struct {
        const char *name;
        size_t offset;
    } numbers[] = {
#define NUMBER(name) {#name, offsetof(Gpu, name)},
        GPU_NUMBERS(NUMBER)
#undef NUMBER
    };
    if (!opened()) return UNINITIALIZED;
    for (unsigned at = 0; at < sizeof numbers / sizeof *numbers; at++)
        if (!strcmp(numbers[at].name, name)) {
            *(long long *)((char *)&machine->gpu[gpu] + numbers[at].offset) = value;
            return SUCCESS;
        }
    return NOT_FOUND;
}

API int standin_add_process(unsigned gpu, int pid, long long bytes, int instance) {
    if (!opened()) return UNINITIALIZED;
    Gpu *found = &machine->gpu[gpu];
    if (found->processes == MOST_PROCESSES) return INSUFFICIENT_RESOURCES;
    found->process[found->processes++] = (Process){pid, instance, bytes};
    return SUCCESS;
}

API int standin_end_processes(unsigned gpu) {
    if (!opened()) return UNINITIALIZED;
    machine->gpu[gpu].processes = 0;
    return SUCCESS;
}

API int standin_fail(const char *call, int gpu, int code) {
    if (!opened() || machine->failures == MOST_FAILURES) return INSUFFICIENT_RESOURCES;
    Failure *failure = &machine->failure[machine->failures];
    snprintf(failure->call, sizeof failure->call, "%s", call);
    failure->gpu = gpu;
    failure->code = code;
    machine->failures++;
    return SUCCESS;
}

API int standin_raise_xid(int gpu, long long xid) {
    if (!opened() || machine->events == MOST_EVENTS) return INSUFFICIENT_RESOURCES;
    locked();
    machine->event[machine->events++] = (Event){gpu, xid};
    unlocked();
    return SUCCESS;
}
