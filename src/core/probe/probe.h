/* The live instruments of a run: section [probe] and the hooks that the trainer calls. */
#pragma once

#include "train/hooks.h"

typedef struct nm_probe_config { /* section [probe] */
    int64_t every;
    bool checkpoints;
    const char *instruments;
} nm_probe_config;

typedef struct nm_probe nm_probe;

void nm_probe_options_add(nm_options *options);
/* *probe is NULL if no measurements are enabled: every = 0 and checkpoints = false. NM_USAGE: an unknown
 * instrument. The probe owns device memory of the model's backend: free it before the trainer. */
nm_status nm_probe_create(nm_probe **probe, const nm_options *options, nm_error *err);
const nm_train_hooks *nm_probe_hooks(const nm_probe *probe); /* NULL for NULL */
void nm_probe_free(nm_probe *probe);
