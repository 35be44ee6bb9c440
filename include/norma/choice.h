/* Choices: an X list is the only place where the constants of an enum, their words and further columns are
 * written.
 *
 *     #define NM_COLORS(C) C(NM_RED, "red", 0xFF0000) C(NM_BLUE, "blue", 0x0000FF)
 *     NM_CHOICES(nm_color, NM_COLORS);                                                     the enum nm_color
 *     static const char *const names[] = {NM_COLORS(NM_CHOICE_NAME)};                      names[NM_BLUE] is
 *     "blue"
 *     NM_CHOICE(config, color, "red", NM_COLORS, "Color of the line.")                     a row of an option
 *     table
 *
 * A member without one of the columns does not compile where that column is used. */
#ifndef NORMA_CHOICE_H
#define NORMA_CHOICE_H

/* Applied to a list: "constant,", "[constant] = word,", "|word" and "+ 1" for each member. */
#define NM_CHOICE_CONSTANT(constant, ...) constant,
#define NM_CHOICE_NAME(constant, ...)     [constant] = NM_CHOICE_FIRST(__VA_ARGS__, ),
#define NM_CHOICE_TEXT(constant, ...)     "|" NM_CHOICE_FIRST(__VA_ARGS__, )
#define NM_CHOICE_ONE(constant, ...)      +1
#define NM_CHOICE_FIRST(first, ...)       first

/* The words of a list as "a|b|c". */
#define NM_CHOICE_WORDS(LIST) (&(LIST(NM_CHOICE_TEXT))[1])

/* The enum of a list, whose values count from 0, LIST_COUNT, and LIST_ENUM, which names the enum for
 * NM_CHOICE. */
#define NM_CHOICES(type, LIST)                                                                               \
    enum { LIST##_COUNT = 0 LIST(NM_CHOICE_ONE) };                                                           \
    typedef enum type { LIST(NM_CHOICE_CONSTANT) } type;                                                     \
    typedef type LIST##_ENUM

#endif
