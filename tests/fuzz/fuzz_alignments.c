/* Links of word alignments: two bytes with the numbers of words, then a line. Accepted links are inside the
 * sentences, and sorted links are different and in order. */
#include <stdlib.h>
#include <string.h>

#include "data/alignments.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint32_t n_source = fuzz_choice(&data, &bytes, 256), n_target = fuzz_choice(&data, &bytes, 256);
    char *line = fuzz_part(&data, &bytes);
    nm_link_list list = {0};
    nm_error err;
    nm_status status = nm_links_parse(&list, line, strlen(line), n_source, n_target, "input:1", &err);
    if (status != NM_OK) {
        fuzz_check_error(status, &err);
    } else {
        nm_links_sort(&list);
        for (size_t i = 0; i < list.n; i++) {
            const nm_link *link = &list.data[i], *last = link - 1;
            NM_ASSERT(link->source < n_source && link->target < n_target);
            NM_ASSERT(!i || last->target < link->target ||
                      (last->target == link->target && last->source < link->source));
        }
    }
    free(list.data);
    free(line);
    return 0;
}
