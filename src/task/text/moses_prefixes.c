/* Language-specific data: rules for apostrophes, marks within words, and abbreviations whose period does not
 * end a sentence. Abbreviations that contain a period (z.B., i.e.) need no entry, because the general rules
 * cover them. Entries consist of ASCII letters and digits. */
#include "text/moses_rules.h"

static const nm_moses_language languages[] = {
    {"en", NM_MOSES_RIGHT, 0},      {"fr", NM_MOSES_LEFT, 0},       {"it", NM_MOSES_LEFT, 0},
    {"ga", NM_MOSES_LEFT, 0},       {"ca", NM_MOSES_LEFT, 0xB7},    {"fi", NM_MOSES_SEPARATE, ':'},
    {"sv", NM_MOSES_SEPARATE, ':'}, {"tdt", NM_MOSES_INSIDE, '\''}, {"so", NM_MOSES_INSIDE, 0},
};

const nm_moses_language *nm_moses_find_language(const char *code)
{
    static const nm_moses_language others = {"", NM_MOSES_SEPARATE, 0};
    for (size_t i = 0; i < sizeof languages / sizeof languages[0]; i++)
        if (!strcmp(languages[i].code, code))
            return &languages[i];
    return &others;
}

/* clang-format off */
#define INITIALS "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z "
#define SMALL_INITIALS "a b c d e f g h i j k l m n o p q r s t u v w x y z "
#define ROMAN_NUMBERS "II III IV VI VII VIII IX XI XII XIII XIV XV XVI XVII XVIII XIX XX "
#define SMALL_ROMAN_NUMBERS "ii iii iv vi vii viii ix xi xii xiii xiv xv xvi xvii xviii xix xx "
#define TITLES                                                                                               \
    /* address */ "Mr Mrs Ms MR MRS MS MM Messrs Mme Mlle Dr DR Prof Hon Sr St "                         \
    /* clergy and officials */ "Rev Msgr Gov Sen Sens Rep Reps Insp Supt " \
    /* military ranks */ "Gen Brig Col Maj Capt Cmdr Comdr Adm Lt Ens Sgt Sfc Cpl Pfc Pvt Adj " \
    /* organizations and others */ "Asst Adv Bart Bros Corp Bldg Hosp Surg Ph Con Op Ord Res Rt "
#define MONTHS "Jan Feb Mar Apr Jun Jul Aug Sep Oct Nov Dec "
#define TEN(tens) \
    tens "0 " tens "1 " tens "2 " tens "3 " tens "4 " tens "5 " tens "6 " tens "7 " tens "8 " tens "9 "
#define ORDINALS                                                                                             \
    "1 2 3 4 5 6 7 8 9 " TEN("1") TEN("2") TEN("3") TEN("4") TEN("5") TEN("6") TEN("7") TEN("8") TEN("9")

static const nm_moses_prefixes lists[] = {
    {"de",
     INITIALS SMALL_INITIALS ROMAN_NUMBERS SMALL_ROMAN_NUMBERS TITLES ORDINALS
     /* running text */ "bzw usw etc vgl ggf sog sogen evtl bzgl dgl dergl usf ca Ca ff vs jun sen spp "
     /* numbers and units */ "Nr No Nos Art pp Mio Mrd Std Zt zzt Dkr "
     /* companies and taxes */ "Co Ltd MwSt Buchst Chr SA BSE", ""},
    {"en",
     INITIALS TITLES MONTHS
     /* running text */ "vs v rev "
     /* titles and numbers */ "Drs Hr Nos Nr Rs", "No Art pp"},
};
/* clang-format on */

const nm_moses_prefixes *nm_moses_find_prefixes(const char *code)
{
    return !strcmp(code, "de") ? &lists[0] : &lists[1];
}
