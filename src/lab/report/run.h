/* A run for the report: all numbers of log.jsonl as series by tag, its strings, and the settings of
 * config.ini.
 *
 * The tag of a number is its path: "train/loss", "valid/bleu", "probe/distance/enc.0.ffn.norm/mean",
 * "probe/gain/enc.0.ffn.norm/histogram.low". Objects in a list are identified by their site, or their stack
 * and layer. An array of numbers is a vector. The reader does not depend on the types of lines, so the values
 * that later versions log can also be drawn. test.json and inspection.json are read in the same way. */
#pragma once

#include "base/hash_map.h"
#include "norma/status.h"

typedef struct nm_series {
    char *tag;
    size_t n, capacity;
    double *update, *seconds, *value; /* [n], finite, in the order of the log */
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
    char *name; /* short, unique in a report; set by nm_report_open */
    nm_series *series;
    size_t n_series, series_capacity;
    nm_hash_map map; /* tag -> index of series */
    nm_vector *vectors;
    size_t n_vectors, vectors_capacity;
    nm_text *texts; /* the strings of the log by tag: "samples/text", "start/device" */
    size_t n_texts, texts_capacity;
    nm_text *settings; /* "model.norm", "layer"; in the order of config.ini */
    size_t n_settings, settings_capacity;
    /* bad: not a JSON object with a type; first_bad: line number from 1 */
    int64_t lines, bad_lines, first_bad;
    double seconds;   /* training time of the last line that has one; also used for lines without one */
    bool open_end;    /* the last line is incomplete: it is being written, or was cut off */
    size_t log_bytes; /* of log.jsonl that have been read */
} nm_report_run;

/* Reads a run folder. A line of the log that is not a JSON object is counted and ignored: the run may be
 * active, or may have been killed while it wrote the line. inspected: file with the output of norma inspect
 * --json, whose objects for this run are read instead of its inspection.json; "": none. NM_USAGE if the name
 * of the folder is empty, NM_IO if the folder has no log.jsonl or a file cannot be read, NM_FORMAT if a file
 * of inspections is malformed. The caller releases the run, also after a failure. */
nm_status nm_report_run_read(nm_report_run *run, const char *folder, const char *inspected, nm_error *err);
/* Reads the lines that were added to log.jsonl since the last call; the last one only if it is complete.
 * *grown: whether there were any.
 * NM_MISMATCH  the file is shorter than before: the run must be read again
 * NM_IO  the file cannot be read */
nm_status nm_report_run_follow(nm_report_run *run, bool *grown, nm_error *err);
/* Adds lines of a log, so that a log can be read while it grows. Only the last call may end within a line. */
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
/* The update of best.safetensors, the last validation marked as best; NaN when there is none. */
double nm_report_run_best_update(const nm_report_run *run);
/* The number of updates so far: the last that is in a training or validation record; NaN when there is
 * none. */
double nm_report_run_updates(const nm_report_run *run);
/* TID of the last layer in the best model, as a ratio; quantity "mean" or "variance". From test.json (norma
 * compare), otherwise from the inspection of the best update, otherwise from the last inspection; NaN when it
 * was not measured. */
double nm_report_run_tid(const nm_report_run *run, const char *quantity);
/* Whether the log shows that the run has not ended: it lacks the last line of a complete log, or was stopped
 * before its last update, and there is no test score. Logs of versions that did not write that line count as
 * ended. */
bool nm_report_run_is_unfinished(const nm_report_run *run);
/* Updates at which the run will end: train.updates, or those of train.epochs at the current rate; NaN if it
 * is unknown. */
double nm_report_run_planned(const nm_report_run *run);
/* Training time that is left at the current rate, in seconds; NaN if it is unknown or the run has ended. */
double nm_report_run_left(const nm_report_run *run);
/* Unix time at which the run started, and a time at or after its end: the start or the last resume plus the
 * whole training time. NaN if the log has no start time. */
double nm_report_run_start(const nm_report_run *run);
double nm_report_run_end(const nm_report_run *run);
/* The value of an option in config.ini, key "section.name"; NULL when there is none. */
const char *nm_report_run_setting(const nm_report_run *run, const char *key);
/* Whether one of the first n runs has the setting. */
bool nm_report_runs_set(const nm_report_run *runs, size_t n, const char *key);
/* The last text with this key; NULL when there is none. */
const char *nm_report_run_text(const nm_report_run *run, const char *key);

/* Whether a tag matches a pattern in which * matches one part without a slash. *part points to that part in
 * tag, *part_len is its length; both may be NULL. They are not set without * or without a match. */
bool nm_tag_match(const char *pattern, const char *tag, const char **part, size_t *part_len);
