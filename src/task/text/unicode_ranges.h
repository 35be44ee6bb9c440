/* Two properties of the Unicode character database that utf8proc does not provide: Alphabetic and Lowercase.
 * The sorted ranges contain the code points that their general category does not imply. */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct nm_unicode_range {
    uint32_t first, last;
} nm_unicode_range;

extern const nm_unicode_range nm_unicode_other_alphabetic[];
extern const size_t nm_unicode_n_other_alphabetic;
extern const nm_unicode_range nm_unicode_other_lowercase[];
extern const size_t nm_unicode_n_other_lowercase;
