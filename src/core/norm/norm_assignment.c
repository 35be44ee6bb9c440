#include "norm/norm_assignment.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "norma/norm_type.h"

/* Whether the text is a layer or a range of layers: "3" or "0-2". */
static bool parse_range(const char *text, size_t length, long *first, long *last)
{
    char *end;
    if (!length || strspn(text, "0123456789-") < length)
        return false;
    *first = *last = strtol(text, &end, 10);
    if (*end == '-' && end < text + length)
        *last = strtol(end + 1, &end, 10);
    return end == text + length;
}

/* Whether the segments of `sites` are the first segments of the site's name. */
static bool site_matches(const char *sites, const char *site)
{
    for (;;) {
        size_t length = strcspn(sites, "."), site_length = strcspn(site, ".");
        long first, last, layer, same;
        bool is_layer = parse_range(site, site_length, &layer, &same);
        if (is_layer && parse_range(sites, length, &first, &last)) {
            if (layer < first || layer > last)
                return false;
        } else if (length != site_length || strncmp(sites, site, length)) {
            return false;
        }
        if (!sites[length])
            return true;
        if (!site[site_length])
            return false;
        sites += length + 1;
        site += site_length + 1;
    }
}

static char *duplicate_span(const char *text, size_t length)
{
    return nm_format("%.*s", (int)length, text);
}

/* Invalid are empty segments and ranges "a-b" with a > b. */
static bool sites_are_valid(const char *sites)
{
    for (;; sites++) {
        size_t length = strcspn(sites, ".");
        long first, last;
        if (!length || (parse_range(sites, length, &first, &last) && first > last))
            return false;
        sites += length;
        if (!*sites)
            return true;
    }
}

nm_status nm_norm_assignments_parse(nm_norm_assignments *assignments, const char *text, nm_error *err)
{
    while (*text) {
        text += strspn(text, " ");
        size_t length = strcspn(text, ","), sites_length = strcspn(text, "=,");
        NM_GROW(assignments->list, assignments->n, assignments->capacity);
        nm_norm_assignment *entry = &assignments->list[assignments->n++];
        *entry = (nm_norm_assignment){.sites = duplicate_span(text, sites_length)};
        size_t type = sites_length + (sites_length < length);
        entry->type = duplicate_span(text + type, length - type);
        if (!*entry->type || !sites_are_valid(entry->sites))
            return nm_fail(err, NM_USAGE,
                           "norm.at: '%.*s' is not of the form SITES=NORM, for example enc.0-2=batch",
                           (int)length, text);
        text += length + (text[length] == ',');
    }
    return NM_OK;
}

void nm_norm_assignments_release(nm_norm_assignments *assignments)
{
    for (size_t i = 0; i < assignments->n; i++)
        NM_FREE(assignments->list[i].sites, assignments->list[i].type);
    free(assignments->list);
    *assignments = (nm_norm_assignments){0};
}

const nm_norm_assignment *nm_norm_assignments_find(const nm_norm_assignments *assignments, const char *site)
{
    for (size_t i = assignments->n; i > 0; i--)
        if (site_matches(assignments->list[i - 1].sites, site))
            return &assignments->list[i - 1];
    return NULL;
}

const nm_norm_assignment *nm_norm_assignments_apply(nm_norm_assignments *assignments, const char *site)
{
    nm_norm_assignment *applied = NULL;
    for (size_t i = 0; i < assignments->n; i++)
        if (site_matches(assignments->list[i].sites, site)) {
            applied = &assignments->list[i];
            applied->matched = true;
        }
    if (applied)
        applied->applied = true;
    return applied;
}

/* "enc.0.self, enc.0.ffn, ..., dec.1.ffn, dec.final": the names without the suffix .norm; of more than 8 only
 * the first and last 4. Heap, freed by the caller. */
static char *list_sites(const char *const *sites, size_t n)
{
    enum { SHOWN = 4 };
    char *text = nm_duplicate("");
    for (size_t i = 0; i < n; i++) {
        if (n > 2 * SHOWN && i == SHOWN)
            i = n - SHOWN;
        size_t length = strlen(sites[i]) - (nm_ends_with(sites[i], ".norm") ? strlen(".norm") : 0);
        const char *separator = i == 0 ? "" : n > 2 * SHOWN && i == n - SHOWN ? ", ..., " : ", ";
        nm_format_append(&text, "%s%.*s", separator, (int)length, sites[i]);
    }
    return text;
}

/* The number of layers of the stack of these sites; 0: no such stack. */
static long count_layers(const char *of, const char *const *sites, size_t n)
{
    size_t prefix = strcspn(of, ".") + 1;
    long layers = 0, layer, same;
    for (size_t i = 0; i < n; i++) {
        const char *number = sites[i] + prefix;
        if (!strncmp(of, sites[i], prefix) && parse_range(number, strcspn(number, "."), &layer, &same) &&
            layer >= layers)
            layers = layer + 1;
    }
    return layers;
}

/* A range of layers that exceeds the stack also applies to its layers, but states another number of
 * layers. */
static nm_status check_range(const nm_norm_assignment *entry, const char *const *sites, size_t n,
                             nm_error *err)
{
    long first, last, layers = count_layers(entry->sites, sites, n);
    const char *dot = strchr(entry->sites, '.');
    if (!dot || !parse_range(dot + 1, strcspn(dot + 1, "."), &first, &last) || last < layers)
        return NM_OK;
    return nm_fail(err, NM_USAGE, "norm.at: %.100s=%s: %.*s has %ld layer%s, numbered from 0", entry->sites,
                   entry->type, (int)(dot - entry->sites), entry->sites, layers, layers == 1 ? "" : "s");
}

nm_status nm_norm_assignments_check(const nm_norm_assignments *assignments, const char *const *sites,
                                    size_t n, nm_error *err)
{
    for (size_t i = 0; i < assignments->n; i++) {
        const nm_norm_assignment *entry = &assignments->list[i];
        if (entry->applied) {
            NM_TRY(check_range(entry, sites, n, err));
            continue;
        }
        if (entry->matched)
            return nm_fail(err, NM_USAGE,
                           "norm.at: %s=%s has no effect because later entries match its sites", entry->sites,
                           entry->type);
        NM_AUTO_FREE char *known = list_sites(sites, n);
        nm_fail(err, NM_USAGE, "norm.at: the model has no site '%.100s'; its sites are %s", entry->sites,
                known);
        return NM_USAGE;
    }
    return NM_OK;
}

static bool any_assigned(const nm_options *options, nm_norm_predicate *is, const void *argument)
{
    NM_AUTO(nm_norm_assignments_release) nm_norm_assignments assignments = {0};
    nm_error ignored; /* a malformed value is reported when the model is built */
    NM_AUTO_FREE char *text = nm_options_get(options, "norm.at");
    bool found = false;
    if (text && nm_norm_assignments_parse(&assignments, text, &ignored) == NM_OK)
        for (size_t i = 0; i < assignments.n; i++)
            found |= is(options, assignments.list[i].type, argument);
    return found;
}

static bool has_value(const nm_options *options, const char *path, const char *value)
{
    NM_AUTO_FREE char *text = nm_options_get(options, path);
    return text && !strcmp(text, value);
}

/* model.norm and model.encoder_norm, but not model.qk_norm, whose type is another option. */
static bool names_norm(const nm_options *options, const char *path)
{
    if (strncmp(path, "model.", 6))
        return false;
    if (!strcmp(path, "model.qk_norm_type"))
        return !has_value(options, "model.qk_norm", "none") || !has_value(options, "model.v_norm", "none");
    return nm_ends_with(path, "norm") && strcmp(path, "model.qk_norm") && strcmp(path, "model.v_norm");
}

/* Whether the decoder has LayerNorm because the norm of the model uses batch statistics. */
static bool has_layer_decoder(const nm_options *options)
{
    NM_AUTO_FREE char *norm = nm_options_get(options, "model.norm");
    const nm_norm_type *type = norm ? nm_norm_type_find(norm) : NULL;
    return type && type->traits & NM_USES_BATCH && has_value(options, "model.decoder_norm", "");
}

bool nm_norm_options_any(const nm_options *options, nm_norm_predicate *is, const void *argument)
{
    bool found =
        any_assigned(options, is, argument) || (has_layer_decoder(options) && is(options, "layer", argument));
    char *path;
    for (size_t i = 0; !found && (path = nm_options_path(options, i)) != NULL; i++) {
        NM_AUTO_FREE char *value = names_norm(options, path) ? nm_options_get(options, path) : NULL;
        found = value && is(options, value, argument);
        free(path);
    }
    return found;
}

bool nm_norm_follows_length(const nm_options *options, const char *name, const void *unused)
{
    const nm_norm_type *type = nm_norm_type_find(name);
    (void)unused;
    if (!type || !type->follows_length)
        return false;
    NM_AUTO_FREE char *section = nm_format("norm.%s", name);
    return type->follows_length(nm_options_find(options, section));
}

bool nm_norm_is_named(const nm_options *options, const char *name, const void *wanted)
{
    (void)options;
    return !strcmp(name, wanted);
}

static bool has_traits(const nm_options *options, const char *name, const void *traits)
{
    const nm_norm_type *type = nm_norm_type_find(name);
    (void)options;
    return type && type->traits & *(const unsigned *)traits;
}

/* GroupNorm with norm.groups, or group scaling. */
static bool uses_groups(const nm_options *options, const char *name, const void *unused)
{
    (void)unused;
    NM_AUTO_FREE char *scaling = nm_format("norm.%s.scaling", name);
    return (!strcmp(name, "group") && has_value(options, "norm.group.groups", "0")) ||
           has_value(options, scaling, "group");
}

/* An option of section [norm], which applies to several types. */
static bool shared_option_applies(const nm_options *options, const char *path)
{
    static const unsigned uses_batch = NM_USES_BATCH, has_state = NM_HAS_STATE;
    if (!strcmp(path, "norm.statistics"))
        return nm_norm_options_any(options, has_traits, &uses_batch);
    if (!strcmp(path, "norm.state"))
        return nm_norm_options_any(options, has_traits, &has_state);
    return strcmp(path, "norm.groups") || nm_norm_options_any(options, uses_groups, NULL);
}

bool nm_norm_option_applies(const nm_options *options, const char *path)
{
    static const char section[] = "norm.";
    const char *norm = path + sizeof section - 1, *end;
    if (strncmp(path, section, sizeof section - 1))
        return true;
    if (!(end = strchr(norm, '.')))
        return shared_option_applies(options, path);
    NM_AUTO_FREE char *name = nm_format("%.*s", (int)(end - norm), norm);
    return nm_norm_options_any(options, nm_norm_is_named, name);
}

bool nm_varies_encoder_norm(const nm_options *options)
{
    NM_AUTO_FREE char *encoder = nm_options_get(options, "model.encoder_norm");
    return encoder && *encoder;
}

const char *nm_norm_option(const nm_options *options)
{
    return nm_varies_encoder_norm(options) ? "model.encoder_norm" : "model.norm";
}
