/* Options of `norma prepare`: their rows, the rules about options without an effect, and those that
 * prepare.like provides. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/pair_input.h"
#include "data/prepare.h"
#include "text/tokenizer.h"

#define C nm_prepare_config
const nm_option nm_prepare_options[] = {
    NM_CHOICE(C, format, "parallel", NM_PREPARE_FORMATS,
              "Format of the input: parallel text of two languages, or plain text for a language model, of "
              "which all lines are kept unless drop_duplicates is set."),
    NM_CHOICE(
        C, documents, "line", NM_DOCUMENT_UNITS,
        "Documents of plain text, which end with </s>: every line, the lines between separators, or the "
        "whole file. Newlines in a document are kept, also those in the texts of JSON lines, of which "
        "each is a document unless this option is line."),
    NM_OPTION(C, document_separator, "", 0, 0,
              "Line that separates documents, such as <|endoftext|>; empty: an empty line."),
    NM_OPTION(C, folder, "", 0, 0, "Folder of the text files and archives; empty: the working directory."),
    NM_OPTION(C, like, "", 0, 0,
              "Data folder, model file or run folder whose text processing is used: tokenizer, BPE codes, "
              "SentencePiece models and dictionaries. For data on which such a model is trained further "
              "(norma train --tune) or tested."),
    NM_OPTION(C, train, "", 0, 0,
              "Training text. Several sources are separated by commas; each is PREFIX of the files "
              "PREFIX.SOURCE_LANG and PREFIX.TARGET_LANG, a name that contains {lang} in place of the "
              "language, SOURCE:TARGET, or a table .tsv, .csv or .jsonl with both sides; for plain text, the "
              "file itself. A path may lead into an archive (de-en.tgz/de-en/train)."),
    NM_OPTION(C, valid, "", 0, 0, "Validation text, which is never filtered."),
    NM_OPTION(C, valid_every, "0", 0, 1 << 30,
              "Every N-th of the training pairs that the filters keep becomes the validation set, of plain "
              "text every N-th block of 20 lines, or every N-th document; 0: none."),
    NM_OPTION(C, test, "", 0, 0, "Test text, which is never filtered."),
    NM_OPTION(C, alignments, "", 0, 0,
              "Word alignments of the training pairs for guided alignment (model.alignment_head): a file "
              "with a line of links SOURCE-TARGET for each pair (Pharaoh format), numbers from 0."),
    NM_CHOICE(C, alignment_words, "raw", NM_ALIGNMENT_WORDS,
              "Words that the links of --alignments number: words of the raw lines, separated by whitespace, "
              "or tokens of the lines as norma tokenize writes them."),
    NM_OPTION(C, source_lang, "", 0, 0, "Source language, also the suffix of its files."),
    NM_OPTION(C, target_lang, "", 0, 0, "Target language, also the suffix of its files."),
    NM_OPTION(C, output, "", 0, 0, "Data folder to write."),
    NM_OPTION(C, encoding, "utf-8", 0, 0,
              "Encoding of the text files, a name of iconv such as latin1, utf-16 or shift_jis; "
              "SOURCE,TARGET if the files of the two sides differ. Files compressed with gzip, xz or zstd "
              "are read directly."),
    NM_OPTION(C, valid_encoding, "", 0, 0,
              "Encoding of the validation text; empty: that of encoding, unless the text is UTF-8."),
    NM_OPTION(C, test_encoding, "", 0, 0,
              "Encoding of the test text; empty: that of encoding, unless the text is UTF-8."),
    NM_CHOICE(
        C, input_format, "auto", NM_PAIR_FORMATS,
        "Format of the files: lines, or one table of pairs; auto depends on the file name (.tsv, .csv, "
        ".jsonl, .ndjson). Segments of .sgm and .xml files and the text of train.tags files are extracted."),
    NM_OPTION(C, source_field, "", 0, 0,
              "Field of the source in a table: number of the column from 1, name, or path of a JSON object "
              "(translation.de); empty: the source language, otherwise column 1; \"text\" for plain text."),
    NM_OPTION(C, target_field, "", 0, 0,
              "Field of the target in a table; empty: the target language, otherwise column 2."),
    NM_OPTION(C, decode_entities, "true", 0, 0,
              "Decoding of &amp; and other entities in .sgm and .xml files."),
    NM_CHOICE(
        C, punctuation, "keep", NM_PUNCTUATIONS,
        "Normalization of punctuation before tokenization: apostrophe replaces the typographic apostrophe "
        "by the ASCII apostrophe; moses also normalizes quotes, dashes and spaces, depending on the language "
        "(normalize-punctuation.perl)."),
    NM_OPTION(C, remove_non_printing, "false", 0, 0,
              "Replacement of non-printing characters by spaces, as Moses' remove-non-printing-char.perl."),
    NM_WORD(C, tokenizer, "moses", NM_TOKENIZER_NAMES,
            "Tokenizer: none for text that is tokenized already; basic_english lowercases and splits off "
            "punctuation like torchtext; sentencepiece is both tokenizer and subword model, for raw text "
            "of any language; byte_level is that of byte-level BPE (GPT-2), for text of any kind, which it "
            "keeps exactly."),
    NM_CHOICE(C, pretokenizer, "gpt2", NM_PRETOKENIZERS,
              "Rules of the tokenizer byte_level, which split text into words before BPE: those of the "
              "tokenizers of GPT-2, Llama 3 (numbers of at most three digits), Qwen 2 and 3 (single digits, "
              "normalization to NFC), or SmolLM (those of GPT-2 with single digits)."),
    NM_OPTION(C, aggressive, "false", 0, 0, "Splitting of words at hyphens into @-@ by the Moses tokenizer."),
    NM_OPTION(C, escape, "true", 0, 0, "Escaping of & | < > ' \" [ ] as entities by the Moses tokenizer."),
    NM_OPTION(
        C, protect, "false", 0, 0,
        "Addresses of pages, mail addresses and tags of markup as one token each by the Moses tokenizer "
        "(its -protected basic-protected-patterns)."),
    NM_OPTION(C, nonbreaking_prefixes, "", 0, 0,
              "File of abbreviations for the Moses tokenizer in the format of its nonbreaking_prefixes, or "
              "folder with a file nonbreaking_prefix.LANGUAGE of each language; empty: Norma's own lists."),
    NM_OPTION(
        C, source_prefixes, "", 0, 0,
        "Abbreviations of the source language, which nonbreaking_prefixes reads: \"Dr Prof | No\", those "
        "after the bar before digits only."),
    NM_OPTION(C, target_prefixes, "", 0, 0, "Abbreviations of the target language, as source_prefixes."),
    NM_OPTION(C, lowercase, "false", 0, 0, "Lowercasing after tokenization."),
    NM_OPTION(
        C, user_symbols, "", 0, 0,
        "User-defined symbols, comma-separated, such as tags of languages and placeholders (<2en>,<num>). "
        "Each is one token wherever it occurs, which is not tokenized or split; byte-level BPE has none."),
    NM_OPTION(
        C, bpe_merges, "10000", 0, 1 << 22,
        "Number of BPE merges learned from both sides jointly; 0 disables BPE, or leaves single bytes with "
        "the tokenizer byte_level."),
    NM_OPTION(C, bpe_vocabulary, "0", 0, 1 << 22,
              "Size of the joint BPE vocabulary in symbols, instead of bpe_merges: characters within words, "
              "characters at the end of words, and merges (--total-symbols of subword-nmt), or 256 bytes and "
              "merges; 0: bpe_merges applies."),
    NM_OPTION(
        C, codes, "", 0, 0,
        "File of BPE codes that replaces learning: of subword-nmt or fastBPE, or of byte-level BPE such as "
        "merges.txt of GPT-2."),
    NM_OPTION(C, bpe_vocabulary_threshold, "0", 0, 1e12,
              "Minimum count of a subword on its side; rarer ones are split into smaller subwords; 0 "
              "disables the threshold."),
    NM_OPTION(
        C, subword_sampling, "false", 0, 0,
        "Dictionary with every subword that BPE-dropout can produce in training (data.subword_dropout); "
        "SentencePiece models and byte-level BPE have all of them."),
    NM_WORD(C, spm_type, "unigram", "unigram|bpe|char", "Type of the SentencePiece model to learn."),
    NM_OPTION(C, spm_vocab_size, "8000", 16, NM_VOCAB_MAX_SIZE,
              "Number of pieces of the SentencePiece model to learn, an upper bound for a small text."),
    NM_OPTION(C, spm_character_coverage, "0.9995", 0.98, 1,
              "Fraction of the characters of the text that become pieces of the SentencePiece model; rarer "
              "ones are unknown or bytes; 1 for languages with few characters."),
    NM_OPTION(
        C, spm_byte_fallback, "true", 0, 0,
        "Encoding of characters without a piece as UTF-8 bytes instead of <unk>, which adds 256 pieces."),
    NM_WORD(
        C, spm_normalization, "auto", "auto|nmt_nfkc|nfkc|nmt_nfkc_cf|nfkc_cf|identity",
        "Unicode normalization of the SentencePiece model to learn; _cf also folds case. auto: identity if "
        "the model produces text of a language without spaces, whose punctuation NFKC would replace; nfkc "
        "for "
        "Persian and Sorani Kurdish, whose zero-width non-joiners nmt_nfkc would replace; otherwise "
        "nmt_nfkc."),
    NM_OPTION(C, spm_model, "", 0, 0,
              "Existing SentencePiece model (file.model), used instead of learning one: for both sides, or "
              "for the source."),
    NM_OPTION(C, spm_target_model, "", 0, 0,
              "Existing SentencePiece model of the target, if it differs from that of the source "
              "(--joint false)."),
    NM_OPTION(C, joint, "true", 0, 0, "One dictionary for source and target, and one SentencePiece model."),
    NM_OPTION(C, dict_source, "", 0, 0,
              "Existing dictionary of the source or of plain text, used instead of building one."),
    NM_OPTION(C, dict_target, "", 0, 0, "Existing dictionary of the target, used instead of building one."),
    NM_OPTION(C, min_count, "0", 0, 1e12,
              "Minimum count of a symbol in the dictionary; rarer ones become <unk>."),
    NM_OPTION(C, max_words, "0", 0, NM_VOCAB_MAX_SIZE,
              "Maximum size of a dictionary in symbols, including the special ones; 0 means no limit."),
    NM_OPTION(C, dict_multiple, "8", 0, 1 << 16,
              "Padding of dictionaries to a multiple of this size; 0 disables padding."),
    NM_CHOICE(
        C, special_ids, "fairseq", NM_VOCAB_ORDERS,
        "Order of the special symbols: <s> <pad> </s> <unk> (fairseq) or <pad> <s> </s> <unk> (tears)."),
    NM_OPTION(
        C, omit_symbols, "", 0, 0,
        "Special symbols that a language model never outputs, of bos, pad and unk, comma-separated, as in "
        "models of norma convert whose vocabulary lacks them. Without unk, text with unknown tokens is an "
        "error."),
    NM_OPTION(C, min_length, "1", 1, 1 << 30,
              "Minimum length of both lines of a training pair in words before BPE, or in pieces of "
              "SentencePiece."),
    NM_OPTION(
        C, max_length, "175", 0, 1 << 30,
        "Maximum length of both lines of a training pair in words before BPE, or in pieces of SentencePiece; "
        "0 means no limit."),
    NM_OPTION(C, ratio, "9", 0, 1e9,
              "Maximum ratio of the lengths of source and target of a training pair, in words, or in "
              "characters for a language "
              "without spaces (zh, ja, th, km, lo, my); 0 disables the filter."),
    NM_OPTION(C, drop_copies, "false", 0, 0,
              "Dropping of training pairs whose source equals the target, as text or after tokenization."),
    NM_OPTION(C, drop_duplicates, "false", 0, 0,
              "Dropping of training pairs that equal an earlier pair after tokenization and lowercasing; of "
              "plain text, of documents or lines that are not empty."),
    NM_CHOICE(
        C, on_invalid, "error", NM_ON_INVALID_CHOICES,
        "Treatment of training text that is not UTF-8 or contains zero bytes, and of malformed rows and "
        "JSON objects after the first: stop with an error, or skip."),
    NM_OPTION(C, threads, "0", 0, 1024,
              "Number of threads; 0: one per core, at most the CPU limit of the container."),
    {0}};
#undef C

/* Whether a SentencePiece model is learned, because none is given. */
static bool learns_spm(const nm_options *options)
{
    const nm_prepare_config *config = nm_options_find(options, "prepare");
    return !strcmp(config->tokenizer, nm_tokenizer_sentencepiece.name) && !*config->spm_model;
}

static bool has_no_given_spm(const nm_options *options)
{
    const nm_prepare_config *config = nm_options_find(options, "prepare");
    return !*config->spm_model;
}

/* Whether a source may be a table: according to input_format or, if that is auto, to the file names. */
static bool has_table(const nm_options *options)
{
    const nm_prepare_config *config = nm_options_find(options, "prepare");
    if (config->input_format != NM_PAIR_AUTO)
        return config->input_format != NM_PAIR_LINES;
    const char *const lists[] = {config->train, config->valid, config->test};
    static const char *const endings[] = {".tsv", ".csv", ".jsonl", ".ndjson"};
    for (int i = 0; i < NM_PREPARE_SPLITS; i++)
        for (int j = 0; j < 4; j++)
            if (strcasestr(lists[i], endings[j]))
                return true;
    return false;
}

/* Whether the dictionary contains every subword that BPE can produce. */
static bool has_all_subwords(const nm_options *options)
{
    const nm_prepare_config *config = nm_options_find(options, "prepare");
    return (*config->codes || config->bpe_merges || config->bpe_vocabulary) && config->min_count <= 1 &&
           !config->max_words && !config->bpe_vocabulary_threshold && !*config->dict_source &&
           !*config->dict_target;
}

/* With SentencePiece it depends on the model, too, which nm_prepare_sentencepiece checks. */
static bool keeps_newlines(const nm_options *options)
{
    const nm_prepare_config *config = nm_options_find(options, "prepare");
    return !strcmp(config->tokenizer, nm_tokenizer_byte_level.name) ||
           !strcmp(config->tokenizer, nm_tokenizer_sentencepiece.name);
}

static bool learns_bpe(const nm_options *options)
{
    const nm_prepare_config *config = nm_options_find(options, "prepare");
    return !*config->codes;
}

/* Whether text is split by BPE, with codes that are learned or given. */
static bool uses_bpe(const nm_options *options)
{
    const nm_prepare_config *config = nm_options_find(options, "prepare");
    return *config->codes || *config->like || config->bpe_merges || config->bpe_vocabulary;
}

/* Whether a dictionary is built, because not all are given. */
static bool builds_dictionary(const nm_options *options)
{
    const nm_prepare_config *config = nm_options_find(options, "prepare");
    bool source = *config->dict_source, target = *config->dict_target;
    if (config->format == NM_PREPARE_TEXT)
        return !source;
    return config->joint ? !source && !target : !source || !target;
}

/* Whether a file that is read has markup with entities: .sgm, .xml, or the training texts of IWSLT. */
static bool has_markup(const nm_options *options)
{
    const nm_prepare_config *config = nm_options_find(options, "prepare");
    const nm_pair_config pairs = {.sides = config->format == NM_PREPARE_TEXT ? 1 : NM_PAIR_SIDES,
                                  .folder = config->folder,
                                  .encoding = config->encoding,
                                  .format = config->input_format,
                                  .languages = {config->source_lang, config->target_lang}};
    const char *const lists[] = {config->train, config->valid, config->test};
    bool found = false;
    for (int i = 0; i < NM_PREPARE_SPLITS; i++) {
        const char *rest = lists[i];
        for (char *name; (name = nm_path_list_next(&rest, nm_pair_source_exists, &pairs));) {
            found |= nm_pair_source_has_markup(&pairs, name);
            free(name);
        }
    }
    return found;
}

#define LEARNED(name)                                                                                        \
    {                                                                                                        \
        "prepare." #name, NULL, NULL, "only a SentencePiece model that is learned has it", learns_spm        \
    }
#define BUILT(name)                                                                                          \
    {                                                                                                        \
        "prepare." #name, NULL, NULL, "the dictionary is given", builds_dictionary                           \
    }
#define PAIRS(name, reason)                                                                                  \
    {                                                                                                        \
        "prepare." #name, "prepare.format", "parallel", reason, NULL                                         \
    }
#define TRAINING(name)                                                                                       \
    {                                                                                                        \
        "prepare." #name, "prepare.train", "!", "there is no training text", NULL                            \
    }
#define NOT_SPM(name)                                                                                        \
    {                                                                                                        \
        "prepare." #name, "prepare.tokenizer", "!sentencepiece",                                             \
            "SentencePiece splits into subwords itself", NULL                                                \
    }
#define NOT_BYTE_LEVEL(name)                                                                                 \
    {                                                                                                        \
        "prepare." #name, "prepare.tokenizer", "!byte_level",                                                \
            "the dictionary has every subword of byte-level BPE", NULL                                       \
    }
const nm_option_rule nm_prepare_rules[] = {
    LEARNED(spm_type),
    LEARNED(spm_vocab_size),
    LEARNED(spm_character_coverage),
    LEARNED(spm_normalization),
    LEARNED(spm_byte_fallback),
    {"prepare.spm_model", "prepare.tokenizer", "sentencepiece", "only that tokenizer has a model", NULL},
    {"prepare.spm_target_model", "prepare.tokenizer", "sentencepiece", "only that tokenizer has a model",
     NULL},
    NOT_SPM(bpe_merges),
    NOT_SPM(bpe_vocabulary),
    {"prepare.bpe_merges", "prepare.bpe_vocabulary", "0", "bpe_vocabulary determines the number of merges",
     NULL},
    {"prepare.bpe_merges", NULL, NULL, "the codes are given", learns_bpe},
    {"prepare.bpe_vocabulary", NULL, NULL, "the codes are given", learns_bpe},
    {"prepare.documents", "prepare.format", "text", "only plain text has documents", NULL},
    {"prepare.documents", NULL, NULL, "only the tokenizers byte_level and sentencepiece keep newlines",
     keeps_newlines},
    {"prepare.document_separator", "prepare.documents", "separated", "only those documents have separators",
     NULL},
    {"prepare.omit_symbols", "prepare.format", "text", "only language models omit symbols", NULL},
    {"prepare.punctuation", "prepare.documents", "line", "it is defined for lines", NULL},
    {"prepare.remove_non_printing", "prepare.documents", "line", "newlines are among these characters", NULL},
    {"prepare.source_field", NULL, NULL, "only a table has fields", has_table},
    {"prepare.target_field", NULL, NULL, "only a table of pairs has fields", has_table},
    NOT_SPM(codes),
    NOT_SPM(bpe_vocabulary_threshold),
    NOT_SPM(subword_sampling),
    NOT_BYTE_LEVEL(bpe_vocabulary_threshold),
    NOT_BYTE_LEVEL(subword_sampling),
    {"prepare.pretokenizer", "prepare.tokenizer", "byte_level", "only that tokenizer has rules", NULL},
    {"prepare.user_symbols", "prepare.tokenizer", "!byte_level", "byte-level BPE has no user-defined symbols",
     NULL},
    {"prepare.user_symbols", NULL, NULL, "a SentencePiece model that is given has its own", has_no_given_spm},
    {"prepare.subword_sampling", NULL, NULL,
     "without BPE, or with bpe_vocabulary_threshold, min_count, max_words or a given dictionary, the "
     "dictionary does not have every subword",
     has_all_subwords},
    {"prepare.alignment_words", "prepare.alignments", "!", "there are no alignments", NULL},
    {"prepare.alignment_words", "prepare.tokenizer", "!sentencepiece",
     "SentencePiece has no tokens but its pieces", NULL},
    {"prepare.aggressive", "prepare.tokenizer", "moses", "only the Moses tokenizer splits hyphens", NULL},
    {"prepare.lowercase", "prepare.tokenizer", "!basic_english", "that tokenizer lowercases already", NULL},
    {"prepare.protect", "prepare.tokenizer", "moses", "only the Moses tokenizer has protected patterns",
     NULL},
    {"prepare.nonbreaking_prefixes", "prepare.tokenizer", "moses",
     "only the Moses tokenizer reads abbreviations", NULL},
    {"prepare.source_prefixes", "prepare.tokenizer", "moses", "only the Moses tokenizer reads abbreviations",
     NULL},
    {"prepare.target_prefixes", "prepare.tokenizer", "moses", "only the Moses tokenizer reads abbreviations",
     NULL},
    {"prepare.escape", "prepare.tokenizer", "moses", "only the Moses tokenizer escapes", NULL},
    {"prepare.bpe_vocabulary_threshold", NULL, NULL, "there is no BPE", uses_bpe},
    BUILT(min_count),
    BUILT(max_words),
    BUILT(dict_multiple),
    PAIRS(min_length, "all lines of plain text are kept"),
    PAIRS(max_length, "all lines of plain text are kept"),
    PAIRS(ratio, "all lines of plain text are kept"),
    PAIRS(drop_copies, "plain text has no pairs"),
    PAIRS(alignments, "plain text has no pairs"),
    {"prepare.decode_entities", NULL, NULL, "no file is .sgm, .xml or a training text with markup",
     has_markup},
    {"prepare.valid_encoding", "prepare.valid", "!", "there is no validation text", NULL},
    {"prepare.test_encoding", "prepare.test", "!", "there is no test text", NULL},
    TRAINING(alignments),
    TRAINING(valid_every),
    TRAINING(on_invalid),
    TRAINING(min_length),
    TRAINING(max_length),
    TRAINING(ratio),
    TRAINING(drop_copies),
    TRAINING(drop_duplicates),
    PAIRS(joint, "plain text has one dictionary"),
    PAIRS(dict_target, "plain text has one dictionary, dict_source"),
    PAIRS(target_lang, "plain text has one language, source_lang"),
    PAIRS(target_prefixes, "plain text has one language, source_lang"),
    PAIRS(spm_target_model, "plain text has one model, spm_model"),
    PAIRS(target_field, "plain text has one field, source_field"),
    {0}};
#undef LEARNED
#undef BUILT
#undef PAIRS
#undef TRAINING
#undef NOT_SPM
#undef NOT_BYTE_LEVEL

const char *const nm_prepare_like_options[] = {"format",
                                               "punctuation",
                                               "remove_non_printing",
                                               "tokenizer",
                                               "pretokenizer",
                                               "aggressive",
                                               "protect",
                                               "nonbreaking_prefixes",
                                               "source_prefixes",
                                               "target_prefixes",
                                               "escape",
                                               "lowercase",
                                               "user_symbols",
                                               "bpe_merges",
                                               "bpe_vocabulary",
                                               "codes",
                                               "subword_sampling",
                                               "spm_type",
                                               "spm_model",
                                               "spm_vocab_size",
                                               "spm_byte_fallback",
                                               "spm_character_coverage",
                                               "spm_normalization",
                                               "spm_target_model",
                                               "joint",
                                               "dict_source",
                                               "dict_target",
                                               "min_count",
                                               "max_words",
                                               "dict_multiple",
                                               "special_ids",
                                               "omit_symbols",
                                               "bpe_vocabulary_threshold",
                                               NULL};

/* Without a tokenizer that depends on the language, the file suffixes need not be language codes. */
nm_tokenizer_options nm_prepare_tokenizer(const nm_prepare_config *config, bool target, const nm_spm *spm)
{
    const char *language = target ? config->target_lang : config->source_lang;
    nm_tokenizer_options options = nm_tokenizer_options_default();
    options.aggressive = config->aggressive;
    options.escape = config->escape;
    options.protect = config->protect;
    options.prefixes = target ? config->target_prefixes : config->source_prefixes;
    options.spm = spm;
    options.pretokenizer = config->pretokenizer;
    options.user_symbols = config->user_symbols;
    if (nm_tokenizer_has_language(config->tokenizer) && *language)
        options.language = language;
    return options;
}

nm_status nm_prepare_read_settings(nm_options **options, const nm_prepare_config **config, const char *name,
                                   const char *text, nm_error *err)
{
    *options = nm_options_create();
    *config = nm_options_add(*options, "prepare", nm_prepare_options, NULL, sizeof **config);
    return nm_options_read_text(*options, name, text, err);
}
