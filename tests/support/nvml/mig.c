/* MIG: modes, profiles, possible placements, and instances that are created and destroyed. */
#include "machine.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    unsigned start, size;
} Placement;

API int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    FIND_GPU(handle);
    if (!model->profiles[0].name) return NOT_SUPPORTED;
    *current = gpu->mig;
    *pending = gpu->mig_pending ? !gpu->mig : gpu->mig;
    return SUCCESS;
}

API int nvmlDeviceSetMigMode(void *handle, unsigned mode, int *activation) {
    FIND_GPU(handle);
    if (!model->profiles[0].name) return NOT_SUPPORTED;
    *activation = gpu->processes ? IN_USE : SUCCESS;
    for (int at = 0; at < MOST_INSTANCES; at++)
        if (gpu->instances[at].used) *activation = IN_USE;
    if (*activation == SUCCESS) gpu->mig = mode;
    return *activation;
}

API int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) {
    FIND_GPU(handle);
    *count = model->profiles[0].name ? model->profiles[0].most : 0;
    return SUCCESS;
}

typedef struct {
    unsigned version, id, is_p2p_supported, slices, instances, processors, copy_engines;
    unsigned decoders, encoders, jpegs, ofas;
    unsigned long long memory_mib;
    char name[96];
} ProfileInfo;

API int nvmlDeviceGetGpuInstanceProfileInfoV(void *handle, unsigned which, ProfileInfo *info) {
    FIND_GPU(handle);
    for (int at = 0; at < MOST_PROFILES && model->profiles[at].name; at++) {
        const Profile *profile = &model->profiles[at];
        if (profile->which != (int)which) continue;
        unsigned version = info->version;
        memset(info, 0, sizeof *info);
        info->version = version;
        info->id = profile->id;
        info->slices = profile->compute_slices;
        info->instances = profile->most;
        info->processors = profile->processors;
        info->copy_engines = profile->copy_engines;
        info->memory_mib = profile->memory_mib;
        snprintf(info->name, sizeof info->name, "%s", profile->name);
        return SUCCESS;
    }
    return NOT_SUPPORTED;
}

API int nvmlDeviceGetGpuInstancePossiblePlacements_v2(void *handle, unsigned id, Placement *found,
                                                      unsigned *count) {
    FIND_GPU(handle);
    const Profile *profile = profile_by_id(model, id);
    if (!profile) return INVALID_ARGUMENT;
    unsigned amount = 0;
    while (amount < 8 && profile->starts[amount] >= 0) amount++;
    if (found && *count < amount) return INSUFFICIENT_SIZE;
    for (unsigned at = 0; found && at < amount; at++)
        found[at] = (Placement){profile->starts[at], profile->memory_slices};
    *count = amount;
    return SUCCESS;
}

static int has_media(const Profile *profile) { return strstr(profile->name, "+me") != NULL; }

static int may_start_at(const Profile *profile, unsigned start) {
    for (int at = 0; at < 8 && profile->starts[at] >= 0; at++)
        if (profile->starts[at] == (int)start) return 1;
    return 0;
}

static int has_room(const Gpu *gpu, const Model *model, const Profile *profile, int start) {
    int alike = 0, media = 0;
    for (int at = 0; at < MOST_INSTANCES; at++) {
        const Instance *each = &gpu->instances[at];
        if (!each->used) continue;
        const Profile *other = profile_by_id(model, each->profile);
        alike += each->profile == profile->id;
        media += has_media(other);
        if (start < each->start + other->memory_slices && each->start < start + profile->memory_slices) return 0;
    }
    return alike < profile->most && !(has_media(profile) && media);
}

API int nvmlDeviceCreateGpuInstanceWithPlacement(void *handle, unsigned id, const Placement *place,
                                                 void **created) {
    FIND_GPU(handle);
    const Profile *profile = profile_by_id(model, id);
    if (!gpu->mig) return NOT_SUPPORTED;
    if (!profile || !may_start_at(profile, place->start)) return INVALID_ARGUMENT;
    locked();
    int code = INSUFFICIENT_RESOURCES;
    for (int at = 0; at < MOST_INSTANCES && has_room(gpu, model, profile, place->start); at++)
        if (!gpu->instances[at].used) {
            gpu->instances[at] = (Instance){1, gpu->next_instance++, id, place->start, 0};
            *created = handle_of(part.gpu, at);
            code = SUCCESS;
            break;
        }
    unlocked();
    return code;
}

API int nvmlGpuInstanceDestroy(void *handle) {
    FIND_GPU(handle);
    if (part.instance == NO_INSTANCE) return INVALID_ARGUMENT;
    Instance *instance = &gpu->instances[part.instance];
    if (instance->has_compute) return IN_USE;
    instance->used = 0;
    return SUCCESS;
}

API int nvmlDeviceGetGpuInstances(void *handle, unsigned id, void **found, unsigned *count) {
    FIND_GPU(handle);
    if (!gpu->mig) return NOT_SUPPORTED;
    *count = 0;
    for (int at = 0; at < MOST_INSTANCES; at++)
        if (gpu->instances[at].used && gpu->instances[at].profile == (int)id)
            found[(*count)++] = handle_of(part.gpu, at);
    return SUCCESS;
}

typedef struct {
    void *device;
    unsigned id, profile;
    Placement placement;
} InstanceInfo;

API int nvmlGpuInstanceGetInfo(void *handle, InstanceInfo *info) {
    FIND_GPU(handle);
    if (part.instance == NO_INSTANCE) return INVALID_ARGUMENT;
    Instance *instance = &gpu->instances[part.instance];
    const Profile *profile = profile_by_id(model, instance->profile);
    *info = (InstanceInfo){handle_of(part.gpu, NO_INSTANCE),
                           instance->id,
                           instance->profile,
                           {instance->start, profile->memory_slices}};
    return SUCCESS;
}

API int nvmlGpuInstanceCreateComputeInstance(void *handle, unsigned profile, void **created) {
    (void)profile;
    FIND_GPU(handle);
    if (part.instance == NO_INSTANCE) return INVALID_ARGUMENT;
    if (gpu->instances[part.instance].has_compute) return INSUFFICIENT_RESOURCES;
    gpu->instances[part.instance].has_compute = 1;
    *created = handle;
    return SUCCESS;
}

API int nvmlComputeInstanceDestroy(void *handle) {
    FIND_GPU(handle);
    if (part.instance == NO_INSTANCE || !gpu->instances[part.instance].has_compute) return INVALID_ARGUMENT;
    for (int at = 0; at < gpu->processes; at++)
        if (gpu->process[at].instance == gpu->instances[part.instance].id) return IN_USE;
    gpu->instances[part.instance].has_compute = 0;
    return SUCCESS;
}

typedef struct {
    unsigned version, id, slices, instances, processors, copy_engines, decoders, encoders, jpegs, ofas;
    char name[96];
} ComputeProfileInfo;

/* The only compute profile here is the one that takes all of its GPU instance; its id is its number. */
API int nvmlGpuInstanceGetComputeInstanceProfileInfoV(void *handle, unsigned which, unsigned engine,
                                                      ComputeProfileInfo *info) {
    static const int SLICES[] = {1, 2, 3, 4, 7};
    FIND_GPU(handle);
    if (part.instance == NO_INSTANCE || engine) return INVALID_ARGUMENT;
    const Profile *profile = profile_by_id(model, gpu->instances[part.instance].profile);
    if (which >= sizeof SLICES / sizeof *SLICES || SLICES[which] != profile->compute_slices) return NOT_SUPPORTED;
    info->id = which;
    info->slices = profile->compute_slices;
    info->instances = 1;
    return SUCCESS;
}

API int nvmlGpuInstanceGetComputeInstances(void *handle, unsigned profile, void **found, unsigned *count) {
    (void)profile;
    FIND_GPU(handle);
    if (part.instance == NO_INSTANCE) return INVALID_ARGUMENT;
    *count = gpu->instances[part.instance].has_compute;
    if (*count) found[0] = handle;
    return SUCCESS;
}

/* A MIG device is the compute instance that programs see. */

API int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **device) {
    FIND_GPU(handle);
    unsigned seen = 0;
    for (int at = 0; at < MOST_INSTANCES; at++)
        if (gpu->instances[at].used && gpu->instances[at].has_compute && seen++ == index) {
            *device = handle_of(part.gpu, at);
            return SUCCESS;
        }
    return NOT_FOUND;
}

API int nvmlDeviceGetGpuInstanceId(void *handle, unsigned *id) {
    FIND_GPU(handle);
    if (part.instance == NO_INSTANCE) return INVALID_ARGUMENT;
    *id = gpu->instances[part.instance].id;
    return SUCCESS;
}
