/* The sections of the page without figures; a section without contents writes nothing. */
#pragma once

#include "report/report.h"

void nm_section_runs(const nm_report *report, FILE *out); /* table of runs, also a legend */
/* Starts a section that folds; it ends with "</details></section>". */
void nm_section_open(const char *id, const char *title, bool open, FILE *out);
void nm_section_legend(const nm_report *report, FILE *out);      /* a button per run */
void nm_section_samples(const nm_report *report, FILE *out);     /* outputs of all runs for the same inputs */
void nm_section_settings(const nm_report *report, FILE *out);    /* where the configurations differ */
void nm_section_training(const nm_report *report, FILE *out);    /* data, model, start time, host, command */
void nm_section_environment(const nm_report *report, FILE *out); /* program, compiler, device */
