#include "api/stop_strings.h"

#include <string.h>

#include "base/memory.h"
#include "base/option_value.h"
#include "base/words.h"

static void add(nm_stop_strings *self, const char *text)
{
    const size_t bytes = strlen(text);
    NM_APPEND(self->list, self->n, self->capacity, nm_duplicate(text));
    self->longest = bytes > self->longest ? bytes : self->longest;
}

nm_status nm_stop_strings_read(nm_stop_strings *self, const nm_options *options, const char *sections,
                               const char *option, const char *const *settings, nm_error *err)
{
    for (size_t i = 0; settings && settings[i]; i += 2) {
        NM_AUTO_FREE char *path = nm_option_path(options, sections, settings[i]);
        const bool matches = !strcmp(path, option);
        if (!matches || !*settings[i + 1])
            continue;
        if (nm_text_check(settings[i + 1], strlen(settings[i + 1]), option, err) != NM_OK)
            return err->status = NM_USAGE;
        add(self, settings[i + 1]);
    }
    return NM_OK;
}

char *nm_stop_strings_find(const nm_stop_strings *self, char *text)
{
    char *first = NULL;
    for (size_t i = 0; i < self->n; i++) {
        char *found = strstr(text, self->list[i]);
        first = found && (!first || found < first) ? found : first;
    }
    return first;
}

void nm_stop_strings_release(nm_stop_strings *self)
{
    nm_free_list(self->list, self->n);
}
