#include "base/nearest_option.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/edit_distance.h"

/* Names that other toolkits use, and options with this meaning; of several that exist, the first one is suggested. */
static const struct {
    const char *given, *option;
} names_of_other_toolkits[] = {
    {"batch_size", "batch"},
    {"batch_size", "max_tokens"},
    {"batch_size", "batch_tokens"},
    {"steps", "updates"},
    {"max_steps", "updates"},
    {"train_steps", "updates"},
    {"learning_rate", "lr"},
    {"clip_norm", "max_grad_norm"},
    {"grad_clip", "max_grad_norm"},
    {"gradient_clip", "max_grad_norm"},
    {"update_freq", "shards"},
    {"accum_count", "shards"},
    {"gradient_accumulation_steps", "shards"},
    {"depth", "layers"},
    {"depth", "encoder_layers"},
    {"n_layers", "encoder_layers"},
    {"num_layers", "encoder_layers"},
    {"hidden_size", "width"},
    {"d_model", "width"},
    {"save_dir", "folder"},
    {"output", "folder"},
    {"output_dir", "folder"},
    {"seq_len", "context"},
    {"seq_len", "max_length"},
    {"eval_steps", "validate_every"},
    {"max_new_tokens", "tokens"},
};

enum { N_NAMES = sizeof names_of_other_toolkits / sizeof *names_of_other_toolkits };

/* Kinds of similarity, the best one first. A name of another toolkit has SAME_MEANING + its index in the table. */
enum { SAME_NAME, SAME_MEANING, SAME_BEGINNING = SAME_MEANING + N_NAMES, NEAR, SAME_END, DIFFERENT };

const char *nm_option_name(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

static uint64_t similarity(const char *given_path, const char *known_path)
{
    enum { SHORTEST_PART = 3 };
    const char *given = nm_option_name(given_path), *known = nm_option_name(known_path);
    size_t n_given = strlen(given), n_known = strlen(known);
    if (!strcmp(given, known) || nm_edit_distance(given_path, known_path) <= 1)
        return SAME_NAME;
    for (uint64_t i = 0; i < N_NAMES; i++)
        if (!strcmp(given, names_of_other_toolkits[i].given) &&
            !strcmp(known, names_of_other_toolkits[i].option))
            return SAME_MEANING + i;
    if (n_given >= SHORTEST_PART && !strncmp(known, given, n_given))
        return SAME_BEGINNING;
    if (nm_edit_distance_is_near(nm_edit_distance(given, known), given))
        return NEAR;
    if (n_given >= SHORTEST_PART && n_known > n_given && known[n_known - n_given - 1] == '_' &&
        !strcmp(known + n_known - n_given, given))
        return SAME_END;
    return DIFFERENT;
}

static uint64_t n_sections(const char *path)
{
    uint64_t n = 0;
    for (; (path = strchr(path, '.')) != NULL; path++)
        n++;
    return n;
}

/* norma compare has in its own section what norma train has in [run]. */
static bool is_of_runs(const char *given, const char *known)
{
    static const char train[] = "run.", compare[] = "compare.";
    return !strncmp(given, train, strlen(train)) && !strncmp(known, compare, strlen(compare)) &&
           !strcmp(given + strlen(train), known + strlen(compare));
}

/* For comparisons only: the kind, then the edit distance, the number of sections, and the length. */
static uint64_t distance_to(const char *given, const char *known)
{
    if (is_of_runs(given, known))
        return 0;
    int whole = 2 * nm_edit_distance(given, known);
    int name = 2 * nm_edit_distance(nm_option_name(given), nm_option_name(known)) + 3;
    return (similarity(given, known) << 32) + ((uint64_t)(whole < name ? whole : name) << 16) +
           (n_sections(known) << 10) + strlen(known);
}

char *nm_nearest_option(const nm_options *options, const char *given)
{
    char *best = NULL, *known;
    uint64_t best_distance = (uint64_t)DIFFERENT << 32;
    for (size_t i = 0; (known = nm_options_path(options, i)) != NULL; i++) {
        uint64_t d = distance_to(given, known);
        if (d < best_distance) {
            free(best);
            best = known;
            best_distance = d;
        } else {
            free(known);
        }
    }
    return best;
}
