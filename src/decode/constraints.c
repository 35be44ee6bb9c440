#include "decode/constraints.h"

#include <string.h>

static bool is_met(nm_constraint_state state, int32_t phrase)
{
    return state.met >> phrase & 1;
}

int32_t nm_constraints_tokens(const nm_constraints *constraints)
{
    int32_t n = 0;
    for (int32_t p = 0; p < constraints->n; p++)
        n += constraints->phrases[p].n;
    return n;
}

bool nm_constraints_are_met(const nm_constraints *constraints, nm_constraint_state state)
{
    for (int32_t p = 0; p < constraints->n; p++)
        if (!is_met(state, p))
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

/* Marks a completed phrase and all shorter phrases that it contains as met. Equal phrases must each be met separately. */
static void complete(const nm_constraints *constraints, nm_constraint_state *state, int32_t phrase)
{
    const nm_phrase *whole = &constraints->phrases[phrase];
    state->met |= (uint64_t)1 << phrase;
    state->n_begun = 0;
    for (int32_t p = 0; p < constraints->n; p++)
        if (constraints->phrases[p].n < whole->n && contains(whole, &constraints->phrases[p]))
            state->met |= (uint64_t)1 << p;
}

/* The longest unmet phrase that begins with the n tokens; -1: none. */
static int32_t find_beginning(const nm_constraints *constraints, nm_constraint_state state,
                              const int32_t *ids, int32_t n)
{
    int32_t found = -1;
    for (int32_t p = 0; p < constraints->n; p++) {
        const nm_phrase *phrase = &constraints->phrases[p];
        if (!is_met(state, p) && phrase->n >= n && !memcmp(phrase->ids, ids, (size_t)n * sizeof *ids) &&
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
        if (first ? is_joined(constraints, last[first - 1]) : !current && state.inside_word)
            continue;
        int32_t phrase = find_beginning(constraints, state, last + first, kept + 1 - first);
        if (phrase < 0)
            continue;
        state.phrase = phrase;
        state.n_begun = kept + 1 - first;
    }
    if (state.n_begun && state.n_begun == constraints->phrases[state.phrase].n)
        complete(constraints, &state, state.phrase);
    state.inside_word = is_joined(constraints, id);
    state.n_met = state.n_begun;
    for (int32_t p = 0; p < constraints->n; p++)
        state.n_met += is_met(state, p) ? constraints->phrases[p].n : 0;
    return state;
}

int32_t nm_constraints_next(const nm_constraints *constraints, nm_constraint_state state, int32_t *ids)
{
    if (state.n_begun) {
        ids[0] = constraints->phrases[state.phrase].ids[state.n_begun];
        return 1;
    }
    int32_t n = 0;
    for (int32_t p = 0; p < constraints->n && !state.inside_word; p++) {
        bool known = is_met(state, p);
        for (int32_t i = 0; i < n; i++)
            known |= ids[i] == constraints->phrases[p].ids[0];
        if (!known)
            ids[n++] = constraints->phrases[p].ids[0];
    }
    return n;
}
