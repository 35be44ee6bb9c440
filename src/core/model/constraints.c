#include "model/constraints.h"

#include <string.h>

/* Number of the constraint that phrase p is a form of. */
static int32_t phrase_number(const nm_constraints *constraints, int32_t p)
{
    return p - constraints->phrases[p].n_seconds;
}

static bool is_met(const nm_constraints *constraints, nm_constraint_state state, int32_t p)
{
    return state.met >> phrase_number(constraints, p) & 1;
}

/* Number of tokens of the constraints in a bit mask. */
static int32_t count_tokens(const nm_constraints *constraints, uint64_t mask)
{
    int32_t n = 0;
    for (int32_t p = 0; p < constraints->n; p++) {
        const nm_phrase *phrase = &constraints->phrases[p];
        int32_t number = phrase_number(constraints, p);
        bool second = p && number == phrase_number(constraints, p - 1);
        int32_t counted = second ? phrase[-1].n : 0;
        if (mask >> number & 1 && phrase->n > counted)
            n += phrase->n - counted;
    }
    return n;
}

int32_t nm_constraints_tokens(const nm_constraints *constraints)
{
    return count_tokens(constraints, UINT64_MAX);
}

bool nm_constraints_are_met(const nm_constraints *constraints, nm_constraint_state state)
{
    for (int32_t p = 0; p < constraints->n; p++)
        if (!is_met(constraints, state, p))
            return false;
    return true;
}

static bool contains(const nm_phrase *whole, const nm_phrase *part)
{
    for (int32_t first = 0; first + part->n <= whole->n; first++)
        if (!memcmp(whole->ids + first, part->ids, (size_t)part->n * sizeof *part->ids))
            return true;
    return false;
}

/* Marks a completed phrase and all shorter phrases that it contains as met. Equal phrases must each be met
 * separately. */
static void complete(const nm_constraints *constraints, nm_constraint_state *state, int32_t phrase)
{
    const nm_phrase *whole = &constraints->phrases[phrase];
    state->met |= (uint64_t)1 << phrase_number(constraints, phrase);
    state->n_begun = 0;
    for (int32_t p = 0; p < constraints->n; p++)
        if (constraints->phrases[p].n < whole->n && contains(whole, &constraints->phrases[p]))
            state->met |= (uint64_t)1 << phrase_number(constraints, p);
}

/* The longest unmet phrase that begins with the n tokens; -1: none. inside: the first of them is within a
 * word. */
static int32_t find_beginning(const nm_constraints *constraints, nm_constraint_state state,
                              const int32_t *ids, int32_t n, bool inside)
{
    int32_t found = -1;
    for (int32_t p = 0; p < constraints->n; p++) {
        const nm_phrase *phrase = &constraints->phrases[p];
        if (!is_met(constraints, state, p) && (phrase->inside || !inside) && phrase->n >= n &&
            !memcmp(phrase->ids, ids, (size_t)n * sizeof *ids) &&
            (found < 0 || phrase->n > constraints->phrases[found].n))
            found = p;
    }
    return found;
}

static bool is_joined(const nm_constraints *constraints, int32_t id)
{
    return constraints->joined && constraints->joined[id];
}

nm_constraint_state nm_constraints_advance(const nm_constraints *constraints, nm_constraint_state state,
                                           int32_t id)
{
    enum {
        WINDOW = 256
    }; /* maximum number of tokens that are compared with the beginnings of other phrases */
    int32_t last[WINDOW], kept = state.n_begun < WINDOW - 1 ? state.n_begun : WINDOW - 1,
                          begun = state.n_begun;
    const nm_phrase *current = begun ? &constraints->phrases[state.phrase] : NULL;
    bool continues = current && current->ids[begun] == id;
    state.n_begun = 0;
    if (continues)
        state.n_begun = begun + 1;
    if (current)
        memcpy(last, current->ids + begun - kept, (size_t)kept * sizeof *last);
    last[kept] = id;
    for (int32_t first = 0; first <= kept && !state.n_begun; first++) {
        bool inside = first     ? is_joined(constraints, last[first - 1])
                      : current ? state.began_inside
                                : state.inside_word;
        int32_t phrase = find_beginning(constraints, state, last + first, kept + 1 - first, inside);
        if (phrase < 0)
            continue;
        state.phrase = phrase;
        state.began_inside = inside;
        state.n_begun = kept + 1 - first;
    }
    if (state.n_begun && state.n_begun == constraints->phrases[state.phrase].n)
        complete(constraints, &state, state.phrase);
    state.inside_word = is_joined(constraints, id);
    state.started = true;
    state.n_met = state.n_begun + count_tokens(constraints, state.met);
    return state;
}

int32_t nm_constraints_next(const nm_constraints *constraints, nm_constraint_state state, int32_t *ids)
{
    if (state.n_begun) {
        ids[0] = constraints->phrases[state.phrase].ids[state.n_begun];
        return 1;
    }
    int32_t n = 0;
    for (int32_t p = 0; p < constraints->n; p++) {
        const nm_phrase *phrase = &constraints->phrases[p];
        bool skipped = is_met(constraints, state, p) || (state.inside_word && !phrase->inside) ||
                       (state.started && phrase->initial);
        for (int32_t i = 0; i < n; i++)
            skipped |= ids[i] == phrase->ids[0];
        if (!skipped)
            ids[n++] = phrase->ids[0];
    }
    return n;
}
