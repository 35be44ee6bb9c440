#include "experiment/run_plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "experiment/text_table.h"

NM_FIELDS(nm_plan_part, NM_PLAN_PART)

double nm_plan_makespan(const double *seconds, size_t n, int64_t slots)
{
    size_t used = slots < (int64_t)n ? (size_t)slots : n;
    double *ends = nm_allocate((used + 1) * sizeof *ends), last = 0;
    for (size_t i = 0; i < n; i++) {
        size_t least = 0;
        for (size_t j = 1; j < used; j++)
            least = ends[j] < ends[least] ? j : least;
        ends[least] += seconds[i];
        last = fmax(last, ends[least]);
    }
    free(ends);
    return last;
}

char *nm_plan_duration(double seconds)
{
    if (!isfinite(seconds))
        return nm_duplicate("-");
    return seconds < 100    ? nm_format("%.0f s", seconds)
           : seconds < 6000 ? nm_format("%.1f min", seconds / 60)
                            : nm_format("%.1f h", seconds / 3600);
}

const char *nm_plan_part_name(const char *phase)
{
    static const char *const meanings[][2] = {
        {"speed", "speed on the first updates"}, {"rates", "learning rate of each variant"},
        {"select", "elimination, common seeds"}, {"confirm", "finalists, fresh seeds"},
        {"grid", "grid points, first seeds"},    {"compare", "runs of the comparison"},
    };
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (!strcmp(meanings[i][0], phase))
            return meanings[i][1];
    return phase;
}

static void add_row(nm_text_table *cells, char *first, char *second, char *third, char *fourth)
{
    char *const row[] = {first, second, third, fourth};
    for (int i = 0; i < 4; i++)
        nm_text_table_add(cells, row[i]);
}

void nm_plan_print(const nm_plan_part *parts, size_t n, bool at_least, FILE *out)
{
    NM_AUTO(nm_text_table_release) nm_text_table cells = {0};
    double all = 0;
    add_row(&cells, nm_duplicate("part"), nm_duplicate("runs"), nm_duplicate("updates"),
            nm_duplicate("time"));
    cells.columns = cells.n;
    for (size_t i = 0; i < n; i++) {
        const nm_plan_part *part = &parts[i];
        bool more = at_least && (!strcmp(part->phase, "select") || !strcmp(part->phase, "confirm"));
        NM_AUTO_FREE char *time = nm_plan_duration(part->seconds);
        add_row(&cells, nm_duplicate(nm_plan_part_name(part->phase)),
                nm_format("%s%lld", more ? "at least " : "", (long long)part->runs),
                nm_format("%lld", (long long)part->updates), nm_format("%s%s", more ? "about " : "", time));
        all += part->seconds;
    }
    NM_AUTO_FREE char *time = nm_plan_duration(all);
    add_row(&cells, nm_duplicate("all"), nm_duplicate(""), nm_duplicate(""),
            nm_format("%s%s", at_least ? "up to " : "", time));
    nm_text_table_print(&cells, NM_TABLE_MARKDOWN, out);
}
