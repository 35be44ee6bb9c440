/* A run as the report sees it: every number of log.jsonl as series by tag, its texts, and the settings of config.ini.
 *
 * The tag of a number is the path that leads to it: "train/loss", "valid/bleu", "probe/distance/enc.0.ffn.norm/mean",
 * "probe/gain/enc.0.ffn.norm/histogram.low"; a row of a list is told by its site, or its stack and layer. An array of numbers is a vector. A reader therefore needs to know no kind of
 * line, and what a later version of the program logs is there to be drawn. test.json and inspection.json, where a run has
 * them, are read the same way. */
#ifndef NM_REPORT_RUN_H
#define NM_REPORT_RUN_H

#include "base/hash_map.h"
#include "norma/status.h"

typedef struct nm_series {
    char *tag;
    size_t n, capacity;
    double *update, *seconds, *value; /* finite; in the order of the log */
} nm_series;

typedef struct nm_vector {
    char *tag;
    double update, seconds;
    size_t n;
    double *values;
} nm_vector;

typedef struct nm_text {
    char *key, *value;
    double update, seconds;
} nm_text;

typedef struct nm_report_run {
    char *folder;
    char *name; /* short, different for each run of a report */
    nm_series *series;
    size_t n_series, series_capacity;
    nm_hash_map map; /* tag -> index of series */
    nm_vector *vectors;
    size_t n_vectors, vectors_capacity;
    nm_text *texts; /* every other string of the log, by tag: "samples/text", "start/device" */
    size_t n_texts, texts_capacity;
    nm_text *settings; /* "model.norm", "layer"; in the order of config.ini */
    size_t n_settings, settings_capacity;
    int64_t lines, bad_lines, first_bad;
    double seconds; /* of the last line that has a time: lines without one happened then */
    bool open_end;  /* the last line has no end: it was being written, or cut off */
} nm_report_run;

/* NM_IO when the folder has no log.jsonl. A line that is no JSON object is counted, not fatal: a run may be going on,
 * or its machine may have stopped in the middle of a line. inspected: a file that norma inspect --json has printed, of
 * which the run's part is read instead of its inspection.json; "": none. NM_IO, NM_FORMAT. */
nm_status nm_report_run_read(nm_report_run *run, const char *folder, const char *inspected, nm_error *err);
/* Adds lines of a log; for one that is read while it grows. */
void nm_report_run_add(nm_report_run *run, const char *text, size_t bytes);
void nm_report_run_release(nm_report_run *run);

/* NULL when there is none. */
const nm_series *nm_report_run_find(const nm_report_run *run, const char *tag);
/* The last value of a series; NaN when there is none. */
double nm_report_run_last(const nm_report_run *run, const char *tag);
/* The last value of the last series that matches a pattern; NaN when there is none. */
double nm_report_run_match(const nm_report_run *run, const char *pattern);
/* The value of a series at an update; NaN when it has none there. series may be NULL. */
double nm_series_at(const nm_series *series, double update);
/* The median (of an even number of values the mean of the middle two); NaN when it is empty or NULL. */
double nm_series_median(const nm_series *series);
/* The update of best.safetensors, the last validation marked as best; NaN when there is none. */
double nm_report_run_best_update(const nm_report_run *run);
/* The number of updates so far: the last that is in a training or validation record; NaN when there is none. */
double nm_report_run_updates(const nm_report_run *run);
/* TID of the last layer in the best model, as a ratio; quantity "mean" or "variance". From test.json (norma compare),
 * otherwise from the inspection of the best update, otherwise from the last inspection; NaN when it was not measured. */
double nm_report_run_tid(const nm_report_run *run, const char *quantity);
/* Seconds since 1970 at which the run started; NaN when the log has no start time. */
double nm_report_run_start(const nm_report_run *run);
const char *nm_report_run_setting(const nm_report_run *run, const char *key);
/* The last text with this key; NULL when there is none. */
const char *nm_report_run_text(const nm_report_run *run, const char *key);

/* Whether a tag is that of a pattern in which * stands for one part without a slash; *part (may be NULL) is where it
 * begins, *part_len its length. */
bool nm_tag_match(const char *pattern, const char *tag, const char **part, size_t *part_len);

#endif
