/* Inventory, health, use, links and events of GPUs. */
#define _GNU_SOURCE
#include "machine.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

API int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    snprintf(text, length, "580.126.09");
    return failure_of(__func__, -1);
}

API int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = machine->gpus;
    return failure_of(__func__, -1);
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    if ((int)index >= machine->gpus) return INVALID_ARGUMENT;
    *handle = handle_of(index, NO_INSTANCE);
    return failure_of(__func__, index);
}

API int nvmlDeviceGetIndex(void *handle, unsigned *index) {
    FIND_GPU(handle);
    *index = part.gpu;
    return SUCCESS;
}

API int nvmlDeviceGetName(void *handle, char *text, unsigned length) {
    FIND_GPU(handle);
    if (part.instance == NO_INSTANCE) {
        snprintf(text, length, "%s", model->name);
    } else {
        const Profile *profile = profile_by_id(model, gpu->instances[part.instance].profile);
        snprintf(text, length, "%s %s", model->name, profile->name);
    }
    return SUCCESS;
}

API int nvmlDeviceGetUUID(void *handle, char *text, unsigned length) {
    FIND_GPU(handle);
    if (part.instance == NO_INSTANCE)
        snprintf(text, length, "GPU-5a7d0000-0000-4000-8000-%012x", part.gpu);
    else
        snprintf(text, length, "MIG-5a7d0000-0000-5000-8000-%06x%06x", part.gpu,
                 gpu->instances[part.instance].id);
    return SUCCESS;
}

API int nvmlDeviceGetSerial(void *handle, char *text, unsigned length) {
    FIND_GPU(handle);
    snprintf(text, length, "16500240000%02d", part.gpu);
    return SUCCESS;
}

typedef struct {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
} PciInfo;

static void write_bus(PciInfo *info, unsigned bus) {
    memset(info, 0, sizeof *info);
    info->bus = bus;
    snprintf(info->id, sizeof info->id, "00000000:%02X:00.0", bus & 0xff);
    snprintf(info->legacy_id, sizeof info->legacy_id, "0000:%02X:00.0", bus & 0xff);
}

API int nvmlDeviceGetPciInfo_v3(void *handle, PciInfo *info) {
    FIND_GPU(handle);
    write_bus(info, 0x10 + part.gpu);
    return SUCCESS;
}

typedef struct {
    unsigned long long total, free, used;
} Memory;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} Memory2;

static long long used_bytes(const Gpu *gpu) {
    long long used = gpu->hidden_mib << 20;
    for (int at = 0; at < gpu->processes; at++) used += gpu->process[at].bytes;
    return used;
}

API int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) {
    FIND_GPU(handle);
    memory->total = (unsigned long long)model->memory_mib << 20;
    if (part.instance != NO_INSTANCE) {
        const Profile *profile = profile_by_id(model, gpu->instances[part.instance].profile);
        memory->total = (unsigned long long)profile->memory_mib << 20;
    }
    memory->used = part.instance == NO_INSTANCE ? used_bytes(gpu) : 0;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

API int nvmlDeviceGetMemoryInfo_v2(void *handle, Memory2 *memory) {
    FIND_GPU(handle);
    if (memory->version != (sizeof *memory | 2u << 24)) return VERSION_MISMATCH;
    memory->total = (unsigned long long)model->memory_mib << 20;
    memory->reserved = 600ull << 20;
    memory->used = used_bytes(gpu);
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

API int nvmlDeviceGetUtilizationRates(void *handle, unsigned rates[2]) {
    FIND_GPU(handle);
    if (gpu->mig) return NOT_SUPPORTED;
    rates[0] = gpu->utilization;
    rates[1] = gpu->utilization / 2;
    return SUCCESS;
}

API int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {
    FIND_GPU(handle);
    *milliwatts = gpu->milliwatts;
    return SUCCESS;
}

API int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *milliwatts) {
    FIND_GPU(handle);
    *milliwatts = model->watts * 1000;
    return SUCCESS;
}

API int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *celsius) {
    FIND_GPU(handle);
    if (sensor) return INVALID_ARGUMENT;
    *celsius = gpu->temperature;
    return SUCCESS;
}

API int nvmlDeviceGetTemperatureThreshold(void *handle, int threshold, unsigned *celsius) {
    FIND_GPU(handle);
    if (threshold > 1) return NOT_SUPPORTED; /* 0 is shutdown, 1 is slowdown */
    *celsius = model->slowdown + (threshold ? 0 : 5);
    return SUCCESS;
}

API int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *reasons) {
    FIND_GPU(handle);
    *reasons = gpu->clock_reasons;
    return SUCCESS;
}

API int nvmlDeviceGetTotalEccErrors(void *handle, int type, int counter, unsigned long long *count) {
    FIND_GPU(handle);
    if (!model->has_ecc) return NOT_SUPPORTED;
    *count = type == 1 && counter == 0 ? gpu->ecc_uncorrected : 0; /* uncorrected, since the last reset */
    return SUCCESS;
}

API int nvmlDeviceGetRemappedRows(void *handle, unsigned *corrected, unsigned *uncorrected,
                                  unsigned *pending, unsigned *failed_rows) {
    FIND_GPU(handle);
    if (!model->has_ecc) return NOT_SUPPORTED;
    *corrected = 0;
    *uncorrected = gpu->rows_pending;
    *pending = gpu->rows_pending != 0;
    *failed_rows = gpu->rows_failed != 0;
    return SUCCESS;
}

typedef struct {
    unsigned pid;
    unsigned long long bytes;
    unsigned instance, compute_instance;
} ProcessInfo;

API int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, ProcessInfo *found) {
    FIND_GPU(handle);
    unsigned room = *count;
    *count = gpu->processes;
    if (room < *count) return INSUFFICIENT_SIZE;
    for (unsigned at = 0; at < *count; at++) {
        Process *each = &gpu->process[at];
        unsigned none = 0xffffffff, instance = each->instance == NO_INSTANCE ? none : (unsigned)each->instance;
        found[at] = (ProcessInfo){each->pid, each->bytes, instance, instance == none ? none : 0};
    }
    return SUCCESS;
}

/* Links and places. `link_to` is the index of the GPU at the other end of all links, or -1 for switches. */

API int nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *active) {
    FIND_GPU(handle);
    if (!model->links) return NOT_SUPPORTED;
    if ((int)link >= model->links) return INVALID_ARGUMENT;
    *active = !gpu->links_down;
    return SUCCESS;
}

API int nvmlDeviceGetNvLinkRemoteDeviceType(void *handle, unsigned link, unsigned *type) {
    FIND_GPU(handle);
    if ((int)link >= model->links) return INVALID_ARGUMENT;
    *type = gpu->link_to < 0 ? 2 : 0;
    return SUCCESS;
}

API int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned link, PciInfo *info) {
    FIND_GPU(handle);
    if ((int)link >= model->links) return INVALID_ARGUMENT;
    write_bus(info, gpu->link_to < 0 ? 0xa0 + link % 4 : 0x10 + gpu->link_to);
    return SUCCESS;
}

API int nvmlDeviceGetTopologyCommonAncestor(void *handle, void *other, unsigned *level) {
    FIND_GPU(handle);
    Part second = part_of(other);
    if (second.gpu < 0) return INVALID_ARGUMENT;
    int same_socket = gpu->numa == machine->gpu[second.gpu].numa;
    *level = second.gpu == part.gpu ? 0 : same_socket ? 30 : 50; /* internal, host bridge, system */
    return SUCCESS;
}

API int nvmlDeviceGetMemoryAffinity(void *handle, unsigned words, unsigned long *nodes, int scope) {
    FIND_GPU(handle);
    if (scope || !words) return INVALID_ARGUMENT;
    memset(nodes, 0, words * sizeof *nodes);
    nodes[0] = gpu->numa < 0 ? 0 : 1ul << gpu->numa;
    return SUCCESS;
}

API int nvmlDeviceGetCpuAffinity(void *handle, unsigned words, unsigned long *cpus) {
    FIND_GPU(handle);
    memset(cpus, 0, words * sizeof *cpus);
    cpus[0] = 0xfful << (gpu->numa < 0 ? 0 : 8 * gpu->numa); /* eight cores on each socket */
    return SUCCESS;
}

typedef struct {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health;
} FabricInfo;

API int nvmlDeviceGetGpuFabricInfoV(void *handle, FabricInfo *info) {
    FIND_GPU(handle);
    if (gpu->clique < 0) return NOT_SUPPORTED;
    if (info->version != (sizeof *info | 2u << 24)) return VERSION_MISMATCH;
    for (int at = 0; at < 16; at++) info->cluster[at] = 0xa0 + at;
    info->status = SUCCESS;
    info->clique = gpu->clique;
    info->state = 3; /* completed */
    return SUCCESS;
}

/* Events: XID errors, each told once. */

typedef struct {
    void *device;
    unsigned long long type, data;
    unsigned instance, compute_instance;
} EventData;

API int nvmlEventSetCreate(void **set) {
    *set = (void *)0x3000;
    return failure_of(__func__, -1);
}

API int nvmlDeviceRegisterEvents(void *handle, unsigned long long types, void *set) {
    (void)types, (void)set;
    FIND_GPU(handle);
    return SUCCESS;
}

static int next_event(EventData *event) {
    locked();
    int found = machine->events > 0;
    if (found) {
        Event first = machine->event[0];
        memmove(machine->event, machine->event + 1, --machine->events * sizeof first);
        *event = (EventData){handle_of(first.gpu, NO_INSTANCE), 8, first.xid, 0xffffffff, 0xffffffff};
    }
    unlocked();
    return found;
}

API int nvmlEventSetWait_v2(void *set, EventData *event, unsigned milliseconds) {
    (void)set;
    for (unsigned waited = 0; !next_event(event); waited += 5) {
        if (waited >= milliseconds) return TIMEOUT;
        usleep(5000);
    }
    return SUCCESS;
}

API int nvmlEventSetFree(void *set) {
    (void)set;
    return SUCCESS;
}
