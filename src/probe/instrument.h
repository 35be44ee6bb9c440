/* Live instruments: one file each, ending in a descriptor that the table of probe.c lists.
 *
 * They are shown norms' calls, gradients and parameters of the updates that are looked at, and answer with lines for
 * log.jsonl (docs/formats.md). They know norms by what these publish, never by type. */
#ifndef NM_INSTRUMENT_H
#define NM_INSTRUMENT_H

#include "probe/numbers.h"
#include "train/hooks.h"

typedef struct nm_look nm_look; /* one update that is looked at, by one instrument */

typedef struct nm_instrument { /* any function may be NULL */
    const char *name, *help;
    void (*norm)(nm_look *look, const nm_norm_call *call, bool backward);
    void (*gradients)(nm_look *look, const nm_model *model);
    void (*updated)(nm_look *look, const nm_model *model);
    void (*release)(nm_look *look);
} nm_instrument;

struct nm_look {
    const nm_instrument *instrument;
    int64_t update;
    double
        units; /* target tokens or examples that the gradients are summed over; set for gradients and updated */
    json_t *lines;       /* array */
    nm_backend *backend; /* set from the first look on */
    void *own;           /* what the instrument keeps from look to look; freed by its release */
};

extern const nm_instrument *const nm_instruments[]; /* NULL at the end */

/* A new line of the log; it belongs to the look. Numbers that are not finite become null. */
json_t *nm_look_line(nm_look *look, const char *site);
void nm_line_number(json_t *line, const char *key, double value);
void nm_line_text(json_t *line, const char *key, const char *value);
json_t *nm_line_array(json_t *line, const char *key); /* an empty one */
void nm_array_number(json_t *array, double value);

/* Sums over groups of parameters. */
typedef struct nm_group_sum {
    char name[96];
    double a, b;
} nm_group_sum;
typedef struct nm_group_sums {
    nm_group_sum *list; /* in the order of the parameters; the first is that of all, named "" */
    size_t n, capacity;
} nm_group_sums;
/* Adds to a and b of the parameter's group and of all. */
void nm_groups_add(nm_group_sums *sums, const char *parameter, double a, double b);
void nm_groups_release(nm_group_sums *sums);

#endif
