/* The parts of the page that are no figures, each a <section>; a part with nothing to say writes nothing. */
#ifndef NM_SECTIONS_H
#define NM_SECTIONS_H

#include "report/report.h"

void nm_section_runs(const nm_report *report, FILE *out); /* the comparison, which is also the legend */
/* Buttons of the runs; kind is the class: "legend", "legend printed". */
void nm_section_legend(const nm_report *report, const char *kind, FILE *out);
void nm_section_samples(const nm_report *report, FILE *out);     /* outputs side by side */
void nm_section_settings(const nm_report *report, FILE *out);    /* where the configurations differ */
void nm_section_training(const nm_report *report, FILE *out);    /* data, model, start time, host, command */
void nm_section_environment(const nm_report *report, FILE *out); /* what the runs ran on, and their files */

#endif
