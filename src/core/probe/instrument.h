/* Live instruments: one file each, ending in a descriptor that the table in probe.c lists.
 *
 * At the selected updates they receive the norm calls, the gradients and the parameters, and append records
 * to log.jsonl (docs/formats.md). They read the statistics that a norm publishes by name and do not depend on
 * its type. */
#pragma once

#include "probe/numbers.h"
#include "train/hooks.h"

typedef struct nm_probe_record nm_probe_record; /* of one instrument at one update */

typedef struct nm_instrument { /* any function may be NULL */
    const char *name;
    /* after each call of a norm */
    void (*norm)(nm_probe_record *record, const nm_norm_call *call, bool backward);
    /* after each residual connection, and each softmax attention */
    void (*residual)(nm_probe_record *record, const nm_residual_call *call);
    void (*attention)(nm_probe_record *record, const nm_attention_call *call);
    void (*gradients)(nm_probe_record *record, const nm_model *model); /* before the optimizer step */
    void (*updated)(nm_probe_record *record, const nm_model *model);   /* after the optimizer step */
    void (*release)(nm_probe_record *record);
} nm_instrument;

struct nm_probe_record {
    const nm_instrument *instrument; /* NULL: not selected */
    int64_t update;
    /* Number of target tokens or examples that the gradients are summed over; set for `gradients` and
     * `updated`. */
    double n_targets;
    double learning_rate; /* of the schedule; set for `gradients` and `updated` */
    json_t *lines;        /* array of the lines of this update */
    nm_backend *backend;  /* NULL before the first call */
    void *state;          /* of the instrument, kept between updates, freed by its release */
};

/* A new line of the log, owned by the record. */
json_t *nm_probe_record_line(nm_probe_record *record, const char *site);
/* Values that are not finite become null. */
void nm_line_number(json_t *line, const char *key, double value);
void nm_line_count(json_t *line, const char *key, int64_t value);
void nm_line_text(json_t *line, const char *key, const char *value);
json_t *nm_line_array(json_t *line, const char *key); /* an empty array, owned by the line */
void nm_array_number(json_t *array, double value);

/* Sums over groups of parameters. */
typedef struct nm_group_sum {
    char name[96];
    double a, b;
} nm_group_sum;
typedef struct nm_group_sums {
    nm_group_sum *list; /* in the order of the parameters; the first is the sum over all, named "" */
    size_t n, capacity;
} nm_group_sums;
/* Adds to the sums a and b of the parameter's group (nm_group_name) and of all parameters. */
void nm_group_sums_add(nm_group_sums *sums, const char *parameter, double a, double b);
void nm_group_sums_release(nm_group_sums *sums);
