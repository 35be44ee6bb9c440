/* Language-specific data: rules for apostrophes, marks within words, and abbreviations whose period does not
 * end a sentence. Abbreviations that contain a period (z.B., i.e.) need no entry, because the general rules
 * cover them. The lists are our own: common abbreviations of each language. Those of English and German agree
 * with the lists of Moses, the others mostly do; nm_moses_prefixes_read reads Moses' own files. */
#include "text/moses_rules.h"

#include <sys/stat.h>

#include "base/file.h"
#include "base/text_input.h"
#include "base/words.h"

static const nm_moses_language languages[] = {
    {"en", NM_MOSES_RIGHT, 0},      {"fr", NM_MOSES_LEFT, 0},       {"it", NM_MOSES_LEFT, 0},
    {"ga", NM_MOSES_LEFT, 0},       {"ca", NM_MOSES_LEFT, 0xB7},    {"fi", NM_MOSES_SEPARATE, ':'},
    {"sv", NM_MOSES_SEPARATE, ':'}, {"tdt", NM_MOSES_INSIDE, '\''}, {"so", NM_MOSES_INSIDE, 0},
    {"de", NM_MOSES_SEPARATE, 0},
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
#define CYRILLIC_INITIALS "А Б В Г Д Е Ж З И К Л М Н О П Р С Т У Ф Х Ц Ч Ш Щ Э Ю Я "
#define GREEK_INITIALS "Α Β Γ Δ Ε Ζ Η Θ Ι Κ Λ Μ Ν Ξ Ο Π Ρ Σ Τ Υ Φ Χ Ψ Ω "

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
    {"es",
     INITIALS "Ñ "
     /* address */ "Sr Sra Srta Sres Sras Dr Dra Dres Lic Ing Arq Prof Profa Excmo Excma Ilmo Ilma "
     /* saints and officials */ "Sto Sta Mons Pdte Gral Cnel Cap Tte Sgto "
     /* running text */ "etc pág págs fig figs art arts cap tít vol núm tel ej aprox máx mín ref ed "
     /* organizations */ "Cía Hnos Univ Dpto Avda Apdo", "núm no"},
    {"fr",
     INITIALS
     /* running text */ "av apr env cf ex hab adj adv etc ibid loc éd al anc "
     /* parts of texts */ "art chap fig figs vol coll bibl ill réf suiv chron "
     /* organizations and places */ "boul dép fém masc St Ste", "no nos p pp n"},
    {"it",
     INITIALS
     /* address */ "Sig Sigg Dott Dr Prof Proff Avv Ing Arch Geom Rag On Mons Gen Col Cap Ten Sen Rev "
     /* running text */ "ecc es pag pagg art artt cap capp fig figg cfr ca vol voll ed tel max min",
     "n nn no"},
    {"pt",
     INITIALS SMALL_INITIALS ROMAN_NUMBERS
     /* address */ "Sr Sra Srs Sras Srta Dr Dra Drs Dras Prof Profa Eng Enga Arq Exmo Exma Exmos Exmas "
     "Ilmo Ilma "
     /* officials */ "Gen Cel Maj Cap Ten Sgt Alm Dep Sen Min Rev Mons "
     /* running text */ "art arts pág págs fig figs cap vol ed etc ex tel núm ref obs aprox máx mín "
     /* places and organizations */ "Av Pça Lg Sto Sta Univ Cia Ltda", "no nos"},
    {"ca",
     INITIALS
     /* address */ "Sr Sra Srs Dr Dra Prof Excm Excma Il·lm Il·lma Mn "
     /* running text */ "etc pàg pàgs fig art arts cap vol núm tel ex ed aprox màx mín av pl ref", ""},
    {"ro",
     INITIALS
     /* address */ "Dl Dna Dra Dr Prof Ing Av Sf Gen Col Lt Cpt "
     /* running text */ "art alin lit nr pag vol cap fig ex etc cca tel str bd bl sc ap jud com", "nr"},
    {"nl",
     INITIALS
     /* address */ "dhr dhrn mevr mw mr drs dr ds ir ing prof Prof bacc lic jhr jkvr "
     /* officials */ "gen kol kapt lt luit sgt min mgr weled "
     /* running text */ "bijv bv enz evt vgl incl excl resp ca ong art afb blz red tel max min jl str",
     "nr nrs"},
    {"sv",
     INITIALS "Å Ä Ö "
     /* address */ "Dr dr prof ing fil kand "
     /* running text */ "bl ca dvs enl etc ev exkl ff forts fr inkl jfr kl kr kap lic m mag max min nr o "
     "obs osv p s sid sk st tel tex tr t u v vol äv", ""},
    {"fi",
     INITIALS "Å Ä Ö "
     /* address */ "Hra Rva Nti hra rva nti Dr Prof prof toht tri maist lis "
     /* running text */ "mm esim ym yms jne ts ns ent ko ks vrt tms os nro puh osoite klo kpl milj mrd n "
     "noin ap ip siv s v vs eaa jaa jms alk kk", ""},
    {"is",
     INITIALS "Á Ð É Í Ó Ú Ý Þ Æ Ö "
     /* running text */ "bls kafl nr þús millj t gr mgr frh frv sbr þ skv sk skst m ca u þá dr Dr prof sr "
     "útg ritstj nóv des jan feb mars apr jún júl ágú sept okt mán virk kl tbl", ""},
    {"et",
     INITIALS "Õ Ä Ö Ü Š Ž "
     /* address */ "hr pr prl prof dr dir "
     /* running text */ "jne jms jt jm nt lk nr st s.o vt u umbes al ed tel tn pst ptk joon lg art p v", ""},
    {"lv",
     INITIALS "Ā Č Ē Ģ Ī Ķ Ļ Ņ Š Ū Ž "
     /* address */ "dr Dr med prof Prof inž Inž kdze akad "
     /* running text */ "piem utt u tml lpp sk skat sal līdz resp red izd nod apm ap ca gs gadi gad plkst "
     "milj tūkst mljrd", "nr Nr"},
    {"lt",
     INITIALS "Ą Č Ę Ė Į Š Ų Ū Ž "
     /* address */ "p ponas dr prof doc akad inž gyd "
     /* running text */ "pan kt ir pvz t y vad vyr žr plg psl str sk pav lent red leid raj aps m mėn d val "
     "min sek tūkst mln mlrd egz vnt tel g al pr a", "nr Nr"},
    {"hu",
     INITIALS "Á É Í Ó Ö Ő Ú Ü Ű "
     /* address */ "Dr dr id ifj özv kb prof "
     /* running text */ "stb pl ill ún ua uo vö ld lásd old évf sz köt fej kiad szerk ford megj jan febr "
     "márc ápr máj jún júl aug szept okt nov dec tel u út krt", "sz"},
    {"pl",
     INITIALS "Ś Ć Ż Ź Ł "
     /* address */ "prof Prof dr hab mgr Mgr inż Inż doc Doc red Red ks Ks bp św Św płk Płk gen Gen por "
     "Por mjr kpt sierż adm mec Mec dyr Dyr lek "
     /* running text */ "np Np tj tzw tzn itp itd m.in ok wg zob por ang niem fr łac pol ros hiszp in im "
     "al ul pl os pkt tel godz min sek tys mln mld zł gr w ww oraz red wyd rys tab rozdz ust przyp pt ps",
     "nr Nr str s r l"},
    {"cs",
     INITIALS "Á Č Ď É Ě Í Ň Ó Ř Š Ť Ú Ů Ý Ž "
     /* address */ "p pí sl Dr dr prof Prof doc Doc Ing ing Mgr Bc MUDr JUDr RNDr PhDr ThDr PaedDr MVDr "
     "PharmDr CSc DrSc gen plk mjr kpt npor sv "
     /* running text */ "č čís č.p str s odst par kap obr tab tj tzv tzn např mj apod atd aj resp popř "
     "event cca viz srov sv ul nám tř tel tis mil mld Kč hod min n l př", ""},
    {"sk",
     INITIALS "Á Č Ď É Í Ľ Ň Ó Š Ť Ú Ý Ž "
     /* address */ "p Dr dr prof Prof doc Doc Ing ing Mgr Bc MUDr JUDr RNDr PhDr ThDr PaedDr MVDr PharmDr "
     "CSc DrSc gen plk mjr kpt npor sv "
     /* running text */ "č str s ods odst kap obr tab t j tzv tzn napr atď a.i a pod resp príp cca porov "
     "ul nám tr tel tis mil mld Sk hod min písm čl zb roč pol", ""},
    {"sl",
     INITIALS "Č Š Ž "
     /* address */ "dr Dr mag Mag prof Prof doc ing Ing dipl g ga gdč sv "
     /* running text */ "npr Npr oz Oz itd itn ipd tj t i cca ca sl gl Gl str čl odst pog prim tel ul op d "
     "jan feb mar apr jun jul avg sept okt nov dec", "št Št"},
    {"el",
     GREEK_INITIALS
     /* address */ "κ κα κκ κος δις δρ Δρ καθ αρχιμ στρ ταξ λοχ "
     /* running text */ "σελ σσ βλ πρβλ κεφ άρθρ αρ τ τόμ εκδ παρ εικ πίν σχ λ.χ π.χ δηλ κλπ κτλ κ.λπ κ.ά "
     "περ μτφρ επιμ υποσ σημ τηλ οδ λεωφ πλ εκατ χιλ δισ χλμ ώρ ημ μ.Χ", ""},
    {"ru",
     CYRILLIC_INITIALS INITIALS
     /* address */ "г гг гр гн госп тов проф акад доц д-р инж ген полк кап лейт им св "
     /* places */ "ул пр просп пл пер бул наб ш обл р-н пос дер с д кв корп стр стр-е оз р о-в ст "
     /* running text */ "см ср напр т тт др пр п пп ч гл рис табл стр с вып изд кн ред сост прим ок тыс "
     "млн млрд трлн руб коп кг м км см мм мин сек час тел др англ нем фр лат рус в вв н э л", ""},
};
/* clang-format on */

static const nm_moses_prefixes *find_list(const char *code)
{
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (!strcmp(lists[i].language, code))
            return &lists[i];
    return NULL;
}

bool nm_moses_has_prefixes(const char *code)
{
    return find_list(code) != NULL;
}

const nm_moses_prefixes *nm_moses_find_prefixes(const char *code)
{
    const nm_moses_prefixes *list = find_list(code);
    return list ? list : find_list("en");
}

/* Adds the entry of a line to the list of its kind. Entries of several words cannot occur before a period
 * that belongs to a word. */
static void add_entry(const char *line, size_t bytes, nm_buffer kinds[2])
{
    const char *word, *mark = "";
    size_t at = 0, word_bytes = 0, mark_bytes = 0;
    if (!nm_word_next(line, bytes, &at, &word, &word_bytes) || *word == '#')
        return;
    bool more = nm_word_next(line, bytes, &at, &mark, &mark_bytes);
    bool numeric = more && mark_bytes >= 14 && !memcmp(mark, "#NUMERIC_ONLY#", 14);
    if ((more && !numeric) || (word_bytes == 1 && *word == '|') || *word == ';')
        return; /* options cannot contain the last one */
    if (numeric || kinds[0].bytes)
        nm_buffer_append_byte(&kinds[numeric], ' ');
    nm_buffer_append(&kinds[numeric], word, word_bytes);
}

nm_status nm_moses_prefixes_read(const char *path, const char *language, char **list, nm_error *err)
{
    struct stat info;
    bool folder = !stat(path, &info) && S_ISDIR(info.st_mode);
    NM_AUTO_FREE char *file =
        folder ? nm_format("%s/nonbreaking_prefix.%s", path, language) : nm_duplicate(path);
    nm_buffer kinds[2] = {{0}, {0}};
    FILE *stream;
    nm_lines lines;
    bool more = true;
    *list = NULL;
    nm_status status = nm_text_open_checked(&stream, file, "utf-8", err);
    if (status == NM_OK) {
        nm_lines_init(&lines, stream, file);
        while ((status = nm_lines_next_text(&lines, &more, err)) == NM_OK && more)
            add_entry(lines.text, lines.bytes, kinds);
        nm_lines_release(&lines);
        fclose(stream);
    }
    if (status == NM_OK && !kinds[0].bytes && !kinds[1].bytes)
        status = nm_fail(err, NM_FORMAT, "%s: contains no abbreviation", file);
    if (status == NM_OK)
        *list =
            nm_format("%s%s%s", kinds[0].bytes ? kinds[0].data : "",
                      kinds[1].bytes ? kinds[0].bytes ? " |" : "|" : "", kinds[1].bytes ? kinds[1].data : "");
    nm_buffer_release(&kinds[0]);
    nm_buffer_release(&kinds[1]);
    return status;
}
