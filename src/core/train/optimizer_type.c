#include "train/optimizer_type.h"

#include <string.h>

const nm_optimizer_type *nm_optimizer_type_of(const nm_optim_config *config)
{
#define TYPE(constant, name, type, phrase) [constant] = &type,
    static const nm_optimizer_type *const types[] = {NM_OPTIMIZERS(TYPE)};
#undef TYPE
    return types[config->name];
}

bool nm_optimizer_uses(const nm_optimizer_type *type, const char *option)
{
    size_t length = strlen(option);
    for (const char *at = type->options; (at = strstr(at, option)); at += length)
        if ((at == type->options || at[-1] == ' ') && (!at[length] || at[length] == ' '))
            return true;
    return false;
}
