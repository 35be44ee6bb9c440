/* The runs and the decisions of a study. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/memory.h"
#include "experiment/study_procedure.h"

static NM_FIELDS(nm_study_decision, NM_STUDY_DECISION)

nm_status nm_study_decide(nm_study_procedure *s, const char *phase, const char *variant, nm_error *err,
                          const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const nm_study_decision decision = {"decision", phase, variant, text, s->now};
    if (s->events.decided)
        s->events.decided(s->events.user, &decision);
    return nm_run_journal_add(&s->journal, nm_study_decision_fields(), &decision, err);
}

bool nm_trial_is_finished(const nm_trial *run)
{
    return !strcmp(run->row.state, "finished") && isfinite(run->row.value);
}

nm_trial **nm_study_trials(const nm_study_procedure *s, const char *phase, size_t v, size_t *n_out)
{
    nm_trial **list = nm_allocate((s->n_runs + 1) * sizeof *list);
    *n_out = 0;
    for (size_t i = 0; i < s->n_runs; i++)
        if (s->runs[i]->variant == v && !strcmp(s->runs[i]->row.phase, phase) &&
            nm_trial_is_finished(s->runs[i]))
            list[(*n_out)++] = s->runs[i];
    return list;
}
