#include "task/tag_chain.h"

static const double forbidden = -10000;

void nm_chain_forbid(nm_chain *chain, nm_tag_scheme scheme, const char *const *names)
{
    for (int32_t from = 0; from < chain->tags; from++) {
        chain->start[from] += nm_tag_allowed(scheme, NULL, names[from]) ? 0 : forbidden;
        chain->end[from] += nm_tag_allowed(scheme, names[from], NULL) ? 0 : forbidden;
        for (int32_t to = 0; to < chain->tags; to++)
            chain->transitions[(size_t)from * (size_t)chain->tags + (size_t)to] +=
                nm_tag_allowed(scheme, names[from], names[to]) ? 0 : forbidden;
    }
}
