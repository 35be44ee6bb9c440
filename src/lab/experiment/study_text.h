/* The plan and the answer of a study as Markdown, and its files. */
#pragma once

#include "experiment/study_procedure.h"

/* Heap. */
char *nm_study_plan_markdown(const nm_study_procedure *study);
char *nm_study_answer_markdown(const nm_study_procedure *study);
/* Writes answer.json, answer.md, winner.ini and the link `winner` to the run folder, and sets
 * answer.model. */
nm_status nm_study_write_files(nm_study_procedure *study, nm_error *err);
