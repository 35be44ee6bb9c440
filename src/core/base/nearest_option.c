#include "base/nearest_option.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/edit_distance.h"
#include "base/foreign_names.h"
#include "base/memory.h"

enum { MOST_ROWS = 100, ROW_RANKS = 16 };

/* Kinds of similarity, the best one first. A name of another toolkit has SAME_MEANING + the number of its row
 * among those that have it, times ROW_RANKS, + the option's rank in this row. */
enum { SAME_PATH, SAME_MEANING, SAME_NAME = SAME_MEANING + MOST_ROWS * ROW_RANKS, SAME_WORDS, DIFFERENT };

const char *nm_option_name(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* Within a row, the options whose name the given one ends with come first: adam_beta2 is optim.beta2. */
static int rank_in_row(const char *given, const char *known, int position)
{
    return nm_ends_with(given, known) ? 0 : position < ROW_RANKS - 1 ? position + 1 : ROW_RANKS - 1;
}

/* The number of the first row with a foreign name that names this option, and its rank there; -1: none. */
static int foreign_rank(const char *given, const char *known_path)
{
    const nm_foreign_row *row = NULL;
    for (int i = 0; (row = nm_foreign_find(given, false, row)) != NULL && i < MOST_ROWS; i++) {
        int position = nm_foreign_option_position(row, known_path);
        if (position >= 0)
            return i * ROW_RANKS + rank_in_row(given, nm_option_name(known_path), position);
    }
    return -1;
}

/* Whether the next words are the same one: equal, shortened, or with a typing error. */
static bool is_same_word(const char *given, size_t n_given, const char *known, size_t n_known)
{
    enum { SHORTEST = 3, WITH_ERROR = 4, WITH_ERRORS = 9 };
    if (n_given <= n_known && (n_given == n_known || n_given >= SHORTEST) && !memcmp(given, known, n_given))
        return true;
    NM_AUTO_FREE char *a = nm_format("%.*s", (int)n_given, given),
                      *b = nm_format("%.*s", (int)n_known, known);
    return n_given >= WITH_ERROR && nm_edit_distance(a, b) <= 1 + (n_given >= WITH_ERRORS);
}

/* Whether both names begin with the same words. *rest: what the known one has in addition. */
static bool begins_with_words(const char *given, const char *known, const char **rest)
{
    for (bool more = true; more;) {
        size_t n_given = strcspn(given, "_"), n_known = strcspn(known, "_");
        if (!is_same_word(given, n_given, known, n_known))
            return false;
        more = given[n_given];
        given += n_given + more;
        known += n_known;
        if (more && !*known++)
            return false;
    }
    *rest = known;
    return true;
}

static char *without_underscores(const char *name)
{
    char *copy = nm_duplicate(name), *end = copy;
    for (const char *at = name; *at; at++)
        if (*at != '_')
            *end++ = *at;
    *end = '\0';
    return copy;
}

/* Another word is another meaning: the words are similar, except for a short one such as bpe_ or _a, or the
 * names differ in one letter without their underscores (maxtokens). */
static bool has_same_words(const char *given, const char *known)
{
    enum { SHORT_WORD = 4, SHORTEST_JOINED = 6 };
    const char *rest, *second = strchr(known, '_');
    if (begins_with_words(given, known, &rest) && strlen(rest) <= SHORT_WORD)
        return true;
    if (second && second - known < SHORT_WORD && begins_with_words(given, second + 1, &rest) && !*rest)
        return true;
    NM_AUTO_FREE char *a = without_underscores(given), *b = without_underscores(known);
    return strlen(a) >= SHORTEST_JOINED && nm_edit_distance(a, b) <= 1;
}

static uint64_t similarity(const char *given_path, const char *known_path)
{
    const char *given = nm_option_name(given_path), *known = nm_option_name(known_path);
    if (nm_edit_distance(given_path, known_path) <= 1)
        return SAME_PATH;
    int rank = foreign_rank(given, known_path);
    if (rank >= 0)
        return SAME_MEANING + (uint64_t)rank;
    if (!strcmp(given, known))
        return SAME_NAME;
    if (nm_foreign_find(given, false, NULL))
        return DIFFERENT; /* the option with this meaning is one of another command */
    return has_same_words(given, known) ? SAME_WORDS : DIFFERENT;
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
