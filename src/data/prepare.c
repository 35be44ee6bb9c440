#include "data/prepare.h"

#include <errno.h>
#include <omp.h>
#include <stdlib.h>
#include <unistd.h>

#include "data/prepare_private.h"

#include "base/file.h"
#include "base/threads.h"
#include "text/tokenizer.h"

#define C nm_prepare_config
const nm_option nm_prepare_options[] = {
    NM_CHOICE(C, format, "parallel", "parallel|text",
              "Format of the input: parallel text of two languages, or plain text for a language model, of "
              "which all lines are kept."),
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
    NM_CHOICE(C, alignment_words, "raw", "raw|tokens",
              "Words that the links of --alignments number: words of the raw lines, separated by whitespace, "
              "or tokens of the lines as norma tokenize writes them."),
    NM_OPTION(C, source_lang, "", 0, 0, "Source language, also the suffix of its files."),
    NM_OPTION(C, target_lang, "", 0, 0, "Target language, also the suffix of its files."),
    NM_OPTION(C, output, "", 0, 0, "Data folder to write."),
    NM_OPTION(C, encoding, "utf-8", 0, 0,
              "Encoding of the text files, a name of iconv such as latin1, utf-16 or shift_jis. Files "
              "compressed with gzip, xz or zstd are read directly."),
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
    NM_CHOICE(C, tokenizer, "moses", NM_TOKENIZER_NAMES,
              "Tokenizer: none for text that is tokenized already; basic_english lowercases and splits off "
              "punctuation like torchtext; sentencepiece is both tokenizer and subword model, for raw text "
              "of any language; byte_level is that of byte-level BPE (GPT-2), for text of any kind, which it "
              "keeps exactly."),
    NM_CHOICE(C, pretokenizer, "gpt2", NM_PRETOKENIZER_NAMES,
              "Rules of the tokenizer byte_level, which split text into words before BPE: those of the "
              "tokenizers of GPT-2, Llama 3 (numbers of at most three digits), Qwen 2 and 3 (single digits, "
              "normalization to NFC), or SmolLM (those of GPT-2 with single digits)."),
    NM_OPTION(C, aggressive, "false", 0, 0, "Splitting of words at hyphens into @-@ by the Moses tokenizer."),
    NM_OPTION(C, escape, "true", 0, 0, "Escaping of & | < > ' \" [ ] as entities by the Moses tokenizer."),
    NM_OPTION(C, lowercase, "false", 0, 0, "Lowercasing after tokenization."),
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
    NM_CHOICE(C, spm_type, "unigram", "unigram|bpe|char", "Type of the SentencePiece model to learn."),
    NM_OPTION(C, spm_vocab_size, "8000", 16, NM_VOCAB_MAX_SIZE,
              "Number of pieces of the SentencePiece model to learn, an upper bound for a small text."),
    NM_OPTION(C, spm_character_coverage, "0.9995", 0.98, 1,
              "Fraction of the characters of the text that become pieces of the SentencePiece model; rarer "
              "ones are unknown or bytes; 1 for languages with few characters."),
    NM_OPTION(
        C, spm_byte_fallback, "true", 0, 0,
        "Encoding of characters without a piece as UTF-8 bytes instead of <unk>, which adds 256 pieces."),
    NM_CHOICE(
        C, spm_normalization, "auto", "auto|nmt_nfkc|nfkc|nmt_nfkc_cf|nfkc_cf|identity",
        "Unicode normalization of the SentencePiece model to learn; _cf also folds case. auto: identity if "
        "the model produces text of a language without spaces, whose punctuation NFKC would replace, "
        "otherwise nmt_nfkc."),
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
        C, special_ids, "fairseq", "fairseq|tears",
        "Order of the special symbols: <s> <pad> </s> <unk> (fairseq) or <pad> <s> </s> <unk> (tears)."),
    NM_OPTION(
        C, omit_symbols, "", 0, 0,
        "Special symbols that a language model never outputs, of bos, pad and unk, comma-separated, as in "
        "models of norma convert whose vocabulary lacks them. Without unk, text with unknown tokens is an "
        "error."),
    NM_OPTION(C, min_length, "1", 1, 1 << 30, "Minimum length of a training line in words before BPE."),
    NM_OPTION(C, max_length, "175", 0, 1 << 30,
              "Maximum length of a training line in words before BPE; 0 means no limit."),
    NM_OPTION(C, ratio, "9", 0, 1e9,
              "Maximum ratio of the lengths of source and target of a training pair, in words, or in "
              "characters for a language "
              "without spaces (zh, ja, th, km, lo, my); 0 disables the filter."),
    NM_CHOICE(C, on_invalid, "error", "error|skip",
              "Treatment of training pairs that are not UTF-8: stop with an error, or skip."),
    NM_OPTION(C, threads, "0", 0, 1024, "Number of threads; 0 means all available ones."),
    {0}};
#undef C

static bool uses_sentencepiece(const nm_prepare_config *config)
{
    return !strcmp(config->tokenizer, nm_tokenizer_sentencepiece.name);
}

/* Whether a SentencePiece model is learned, because none is given. */
static bool learns_spm(const nm_options *options)
{
    const nm_prepare_config *config = nm_options_find(options, "prepare");
    return uses_sentencepiece(config) && !*config->spm_model;
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

static bool learns_bpe(const nm_options *options)
{
    const nm_prepare_config *config = nm_options_find(options, "prepare");
    return !*config->codes;
}

#define LEARNED(name)                                                                                        \
    {                                                                                                        \
        "prepare." #name, NULL, NULL, "only a SentencePiece model that is learned has it", learns_spm        \
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
    {"prepare.spm_model", "prepare.tokenizer", "sentencepiece", "only that tokenizer has a model", NULL},
    {"prepare.spm_target_model", "prepare.tokenizer", "sentencepiece", "only that tokenizer has a model",
     NULL},
    NOT_SPM(bpe_merges),
    NOT_SPM(bpe_vocabulary),
    {"prepare.bpe_merges", "prepare.bpe_vocabulary", "0", "bpe_vocabulary determines the number of merges",
     NULL},
    {"prepare.bpe_vocabulary", NULL, NULL, "the codes are given", learns_bpe},
    {"prepare.documents", "prepare.format", "text", "only plain text has documents", NULL},
    {"prepare.documents", "prepare.tokenizer", "byte_level", "only that tokenizer keeps newlines", NULL},
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
    {"prepare.subword_sampling", NULL, NULL,
     "without BPE, or with bpe_vocabulary_threshold, min_count, max_words or a given dictionary, the "
     "dictionary does not have every subword",
     has_all_subwords},
    {"prepare.alignment_words", "prepare.alignments", "!", "there are no alignments", NULL},
    {"prepare.alignment_words", "prepare.tokenizer", "!sentencepiece",
     "SentencePiece has no tokens but its pieces", NULL},
    {"prepare.aggressive", "prepare.tokenizer", "moses", "only the Moses tokenizer splits hyphens", NULL},
    {0}};
#undef LEARNED
#undef NOT_SPM
#undef NOT_BYTE_LEVEL

const char *const nm_prepare_like_options[] = {"format",
                                               "punctuation",
                                               "remove_non_printing",
                                               "tokenizer",
                                               "pretokenizer",
                                               "aggressive",
                                               "escape",
                                               "lowercase",
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

const char *const nm_prepare_split_names[NM_PREPARE_SPLITS] = {"train", "valid", "test"};

nm_document_rule nm_prepare_document_rule(const nm_prepare_config *config)
{
    return (nm_document_rule){config->documents, config->document_separator};
}

void nm_prepare_cleaner_init(nm_cleaner *cleaner, const nm_prepare_config *config, int side)
{
    const nm_clean_options options = {.punctuation = config->punctuation,
                                      .non_printing = config->remove_non_printing,
                                      .language = side ? config->target_lang : config->source_lang};
    nm_cleaner_init(cleaner, &options);
}

const char *nm_prepare_side_name(int sides, int side)
{
    return sides == 1 ? "text" : side ? "target" : "source";
}

nm_status nm_prepare_open_split(nm_corpus *corpus, const char *folder, int split, int sides, int side,
                                int32_t vocab_size, nm_error *err)
{
    char *prefix =
        nm_format("%s/%s.%s", folder, nm_prepare_split_names[split], nm_prepare_side_name(sides, side));
    char *ids = nm_format("%s.ids", prefix);
    bool found;
    nm_status status = nm_file_find(ids, &found, err);
    if (status == NM_OK && (split == PREPARE_TRAIN || found))
        status = nm_corpus_open(corpus, prefix, vocab_size, err);
    free(ids);
    free(prefix);
    return status;
}

nm_status nm_prepare_check_folder(const char *folder, const char *arguments, nm_error *err)
{
    if (!*folder)
        return nm_fail(err, NM_USAGE, "data.folder is not set: give a folder written by norma prepare%s",
                       arguments);
    char *settings = nm_path_join(folder, "data.ini");
    bool found;
    nm_status status = nm_file_find(settings, &found, err);
    if (status == NM_OK && !found)
        status = nm_fail(err, NM_IO,
                         "%s: No such file: data.folder is not a data folder; norma prepare%s --output %s "
                         "writes one, see norma prepare --help",
                         settings, arguments, folder);
    free(settings);
    return status;
}

nm_status nm_prepare_measure(const char *folder, int sides, int64_t *n_sequences, int64_t *n_tokens,
                             nm_error *err)
{
    nm_corpus corpus = {0};
    NM_TRY(nm_prepare_open_split(&corpus, folder, PREPARE_TRAIN, sides, sides - 1, INT32_MAX, err));
    *n_sequences = corpus.n;
    *n_tokens = (int64_t)corpus.offsets[corpus.n];
    nm_corpus_close(&corpus);
    return NM_OK;
}

static const struct {
    const char *text, *option;
} drops[NM_DROP_N] = {
#define D(name, text, option) {text, option},
    NM_DROP_LIST(D)
#undef D
};

const char *nm_drop_text(nm_drop drop)
{
    return drop < NM_DROP_N ? drops[drop].text : "kept";
}

const char *nm_drop_option(nm_drop drop)
{
    return drop < NM_DROP_N ? drops[drop].option : "";
}

void nm_prepare_report_release(nm_prepare_report *report)
{
    for (int split = 0; split < NM_PREPARE_SPLITS; split++) {
        free(report->splits[split].columns);
        for (int drop = 0; drop < NM_DROP_N; drop++)
            for (int i = 0; i < report->splits[split].n_examples[drop]; i++) {
                nm_drop_example *example = &report->splits[split].examples[drop][i];
                free(example->path);
                for (int side = 0; side < NM_PREPARE_SIDES; side++)
                    free(example->text[side]);
            }
    }
    *report = (nm_prepare_report){0};
}

const char *nm_prepare_prefix(const nm_prepare_config *config, int split)
{
    return split == PREPARE_TRAIN ? config->train : split == PREPARE_VALID ? config->valid : config->test;
}

bool nm_prepare_has_split(const nm_prepare_config *config, int split)
{
    return *nm_prepare_prefix(config, split) || (split == PREPARE_VALID && config->valid_every);
}

char *nm_prepare_path(const nm_prepare *self, int split, int side, const char *suffix)
{
    char *name = nm_format("%s.%s%s%s", nm_prepare_split_names[split],
                           nm_prepare_side_name(self->sides, side), suffix ? "." : "", suffix ? suffix : "");
    char *path = nm_path_join(self->config->output, name);
    free(name);
    return path;
}

static bool is_text(const nm_prepare_config *config)
{
    return config->format == NM_PREPARE_TEXT;
}

static nm_status check_config(const nm_prepare_config *config, nm_error *err)
{
    if (!*config->output)
        return nm_fail(err, NM_USAGE, "no output folder given (--output)");
    if (!is_text(config) &&
        (!*config->source_lang || !*config->target_lang || !strcmp(config->source_lang, config->target_lang)))
        return nm_fail(err, NM_USAGE, "two different languages are required (--source-lang, --target-lang)");
    if (!*config->train && !*config->valid && !*config->test)
        return nm_fail(err, NM_USAGE, "no text given (--train, --valid, --test)");
    nm_vocab symbols = {.bos = 0, .pad = 1, .eos = 2, .unk = 3};
    NM_TRY(nm_vocab_omit(&symbols, config->omit_symbols, err));
    if (config->valid_every && (*config->valid || !*config->train))
        return nm_fail(err, NM_USAGE, "valid_every holds out training text: it needs --train and no --valid");
    if (*config->alignments && (!*config->train || is_text(config)))
        return nm_fail(err, NM_USAGE, "alignments require parallel training text (--train)");
    if (config->valid_every == 1)
        return nm_fail(err, NM_USAGE, "valid_every = 1 leaves nothing for training");
    if (config->max_length && config->max_length < config->min_length)
        return nm_fail(err, NM_USAGE, "max_length is below min_length");
    if (config->ratio > 0 && config->ratio < 1)
        return nm_fail(err, NM_USAGE, "ratio = %g: must be 0 or at least 1", config->ratio);
    bool dictionaries = *config->dict_source && *config->dict_target;
    if (config->joint)
        dictionaries = *config->dict_source || *config->dict_target;
    if (is_text(config))
        dictionaries = *config->dict_source;
    if (*config->train || *config->like)
        return NM_OK;
    if (!dictionaries)
        return nm_fail(err, NM_USAGE,
                       "without --train dictionaries are required (--dict-source, --dict-target)");
    if (uses_sentencepiece(config))
        return *config->spm_model
                   ? NM_OK
                   : nm_fail(err, NM_USAGE,
                             "without --train a SentencePiece model is required (--spm-model)");
    bool learns = (config->bpe_merges || config->bpe_vocabulary) && !*config->codes;
    if (config->bpe_vocabulary_threshold || learns)
        return nm_fail(err, NM_USAGE,
                       "without --train BPE requires --codes (or --bpe-merges 0) and no threshold");
    return NM_OK;
}

/* Flushes the token files, so that a full disk is reported before any existing file is replaced. */
static nm_status flush_ids(nm_prepare *self, nm_error *err)
{
    for (int k = 0; k <= NM_PREPARE_SPLITS * self->sides; k++) {
        nm_corpus_writer *writer = k == NM_PREPARE_SPLITS * self->sides
                                       ? &self->alignments
                                       : &self->ids[k / self->sides][k % self->sides];
        nm_file_writer *files[2] = {&writer->ids, &writer->offsets};
        for (int i = 0; i < 2; i++)
            if (files[i]->stream && (ferror(files[i]->stream) || fflush(files[i]->stream)))
                return nm_fail(err, nm_file_error_status(errno), "%s: writing failed: %s", files[i]->path,
                               strerror(errno));
    }
    return NM_OK;
}

/* Commits a file of tokenized lines and adds its checksum. */
static nm_status commit_words(nm_prepare *self, int split, int side, nm_error *err)
{
    NM_TRY(nm_file_writer_commit(&self->text[split][side], err));
    char *path = nm_prepare_path(self, split, side, "words");
    nm_file_map map;
    nm_status status = nm_file_map_open(&map, path, err);
    if (status == NM_OK) {
        nm_checksums_add(&self->checksums, strrchr(path, '/') + 1, map.data, map.bytes);
        nm_file_unmap(&map);
    }
    free(path);
    return status;
}

static nm_status commit_splits(nm_prepare *self, nm_error *err)
{
    for (int split = 0; split < NM_PREPARE_SPLITS; split++)
        for (int side = 0; nm_prepare_has_split(self->config, split) && side < self->sides; side++) {
            if (split != PREPARE_TRAIN)
                NM_TRY(commit_words(self, split, side, err));
            NM_TRY(nm_corpus_writer_commit(&self->ids[split][side], err));
        }
    return self->alignments.ids.stream ? nm_corpus_writer_commit(&self->alignments, err) : NM_OK;
}

static nm_status write_file(const nm_prepare *self, const char *name, const char *bytes, size_t n,
                            nm_error *err)
{
    char *path = nm_path_join(self->config->output, name);
    nm_status status = nm_file_write(path, bytes, n, err);
    free(path);
    return status;
}

static nm_status write_text(nm_prepare *self, const char *name, const nm_buffer *text, nm_error *err)
{
    nm_checksums_add(&self->checksums, name, text->data, text->bytes);
    return write_file(self, name, text->data, text->bytes, err);
}

/* Writes the subwords that BPE with a threshold may produce on a side, with their counts on that side; the counts of a joint
 * dictionary are those of both sides. */
static nm_status write_subwords(nm_prepare *self, int side, nm_buffer *text, nm_error *err)
{
    const char *name = self->sides == 1 ? "units.txt" : side ? "units.target.txt" : "units.source.txt";
    nm_vocab_options options = nm_vocab_options_default();
    nm_vocab *subwords;
    options.threshold = self->config->bpe_vocabulary_threshold;
    options.multiple = 1;
    NM_TRY(nm_vocab_build(&self->bpe_counts[side], &options, &subwords, err));
    nm_buffer_clear(text);
    nm_vocab_format(subwords, text);
    nm_vocab_free(subwords);
    return write_text(self, name, text, err);
}

static nm_status write_dictionaries(nm_prepare *self, nm_error *err)
{
    nm_buffer text = {0};
    nm_status status = NM_OK;
    for (int side = 0; status == NM_OK && side < self->sides; side++) {
        const char *name = self->sides == 1 ? "dict.txt" : side ? "dict.target.txt" : "dict.source.txt";
        nm_buffer_clear(&text);
        nm_vocab_format(self->vocab[side], &text);
        status = write_text(self, name, &text, err);
        if (status == NM_OK && self->bpe_counts[side].n)
            status = write_subwords(self, side, &text, err);
    }
    for (int side = 0; status == NM_OK && side < self->sides && self->spm[side]; side++) {
        char *name = nm_prepare_spm_name(self->sides, side);
        status = write_text(self, name, &self->spm_bytes[side], err);
        free(name);
    }
    if (status == NM_OK && self->bpe) {
        nm_buffer_clear(&text);
        nm_bpe_format_text(self->bpe, self->bpe->format, &text);
        status = write_text(self, "codes.bpe", &text, err);
    }
    nm_buffer_release(&text);
    return status;
}

/* Writes the checksums of all files, then data.ini. */
static nm_status write_options(nm_prepare *self, nm_error *err)
{
    char *settings;
    size_t bytes;
    FILE *stream = nm_text_stream_open(&settings, &bytes);
    nm_options_write(self->options, stream);
    nm_text_stream_close(stream);
    nm_checksums_add(&self->checksums, "data.ini", settings, bytes);
    nm_status status = write_file(self, NM_CHECKSUMS_NAME, self->checksums.data, self->checksums.bytes, err);
    if (status == NM_OK)
        status = write_file(self, "data.ini", settings, bytes, err);
    free(settings);
    return status;
}

static nm_status remove_file(const nm_prepare *self, const char *name, nm_error *err)
{
    char *path = nm_path_join(self->config->output, name);
    nm_status status = NM_OK;
    if (unlink(path) && errno != ENOENT)
        status =
            nm_fail(err, nm_file_error_status(errno), "%s: cannot be removed: %s", path, strerror(errno));
    free(path);
    return status;
}

static nm_status remove_split(const nm_prepare *self, int split, const char *side, nm_error *err)
{
    static const char *const suffixes[] = {"ids", "off", "words"};
    for (int i = 0; i < 3; i++) {
        char *name = nm_format("%s.%s.%s", nm_prepare_split_names[split], side, suffixes[i]);
        nm_status status = remove_file(self, name, err);
        free(name);
        NM_TRY(status);
    }
    return NM_OK;
}

/* Removes files of an earlier preparation in the same folder that this one does not replace. */
static nm_status remove_stale(const nm_prepare *self, nm_error *err)
{
    static const struct {
        const char *side, *dictionary, *units;
        int sides; /* of the format with this side */
    } all[] = {{"source", "dict.source.txt", "units.source.txt", 2},
               {"target", "dict.target.txt", "units.target.txt", 2},
               {"text", "dict.txt", "units.txt", 1}};
    NM_TRY(remove_file(self, "data.ini", err));
    NM_TRY(remove_file(self, NM_CHECKSUMS_NAME, err));
    if (!self->bpe)
        NM_TRY(remove_file(self, "codes.bpe", err));
    if (!self->alignments.ids.stream)
        NM_TRY(remove_split(self, PREPARE_TRAIN, "alignment", err));
    for (int sides = 1; sides <= 2; sides++)
        for (int side = 0; side < sides; side++) {
            char *name = nm_prepare_spm_name(sides, side);
            nm_status status = remove_file(self, name, err);
            free(name);
            NM_TRY(status);
        }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool used = all[i].sides == self->sides;
        if (!used)
            NM_TRY(remove_file(self, all[i].dictionary, err));
        NM_TRY(remove_file(self, all[i].units, err));
        for (int split = 0; split < NM_PREPARE_SPLITS; split++)
            if (!used || !nm_prepare_has_split(self->config, split))
                NM_TRY(remove_split(self, split, all[i].side, err));
    }
    return NM_OK;
}

/* Commits all files. data.ini marks a folder as complete, so it is removed first and written last. */
static nm_status finish(nm_prepare *self, nm_error *err)
{
    NM_TRY(flush_ids(self, err));
    NM_TRY(remove_stale(self, err));
    NM_TRY(commit_splits(self, err));
    NM_TRY(write_dictionaries(self, err));
    return write_options(self, err);
}

nm_status nm_prepare_report_progress(const nm_prepare *self, const char *step, int64_t lines, nm_error *err)
{
    const nm_prepare_progress progress = {step, lines};
    if (!self->events->progress || self->events->progress(self->events->user, &progress))
        return NM_OK;
    return nm_fail(err, NM_INTERRUPTED, "interrupted; %s is as before", self->config->output);
}

/* NM_USAGE if the training text is too short for valid_every. */
static nm_status check_held_out(const nm_prepare *self, nm_error *err)
{
    const nm_prepare_split_report *train = &self->report->splits[PREPARE_TRAIN];
    if (!self->config->valid_every || train->held_out)
        return NM_OK;
    char *unit = self->config->documents != NM_DOCUMENT_LINE ? nm_duplicate("documents")
                 : is_text(self->config) ? nm_format("lines (in blocks of %d)", NM_PREPARE_TEXT_BLOCK)
                                         : nm_duplicate("pairs");
    nm_fail(err, NM_USAGE,
            "valid_every = %lld holds out nothing of %lld %s of training text; choose a smaller number",
            (long long)self->config->valid_every, (long long)train->kept, unit);
    free(unit);
    return NM_USAGE;
}

static nm_status run_steps(nm_prepare *self, nm_error *err)
{
    nm_folder_remove_temporaries(self->config->output);
    if (uses_sentencepiece(self->config)) {
        NM_TRY(nm_prepare_report_progress(self, "sentencepiece", 0, err));
        NM_TRY(nm_prepare_sentencepiece(self, err));
    }
    for (int split = 0; split < NM_PREPARE_SPLITS; split++)
        if (*nm_prepare_prefix(self->config, split))
            NM_TRY(nm_prepare_words(self, split, err));
    NM_TRY(check_held_out(self, err));
    NM_TRY(nm_prepare_report_progress(self, "subwords", 0, err));
    NM_TRY(nm_prepare_subwords(self, err));
    NM_TRY(nm_prepare_report_progress(self, "ids", 0, err));
    NM_TRY(nm_prepare_alignments(self, err));
    NM_TRY(nm_prepare_overlap(self, err));
    NM_TRY(nm_prepare_ids(self, err));
    return finish(self, err);
}

static void release(nm_prepare *self)
{
    for (int side = 0; side < NM_PREPARE_SIDES; side++) {
        nm_counter_release(&self->words[side]);
        nm_counter_release(&self->bpe_counts[side]);
        nm_counter_release(&self->subwords[side]);
        free(self->pieces[side].ends);
        free(self->pieces[side].numbers);
        nm_buffer_release(&self->spm_bytes[side]);
        if (!side || self->spm[side] != self->spm[0])
            nm_spm_free(self->spm[side]);
        if (self->vocab[side])
            nm_vocab_free(self->vocab[side]);
        for (int split = 0; split < NM_PREPARE_SPLITS; split++) {
            nm_file_writer_abort(&self->text[split][side]);
            nm_file_writer_abort(&self->numbers[split][side]);
            nm_corpus_writer_abort(&self->ids[split][side]);
        }
    }
    if (self->bpe)
        nm_bpe_free(self->bpe);
    nm_file_writer_abort(&self->links);
    nm_corpus_writer_abort(&self->alignments);
    nm_buffer_release(&self->checksums);
}

nm_status nm_prepare_run(const nm_options *options, const nm_prepare_likeness *like,
                         const nm_prepare_events *events, nm_prepare_report *report, nm_error *err)
{
    static const nm_prepare_likeness none;
    const nm_prepare_config *config = nm_options_find(options, "prepare");
    NM_ASSERT(config);
    *report = (nm_prepare_report){0};
    NM_TRY(check_config(config, err));
    nm_prepare self = {.options = options,
                       .config = config,
                       .like = like ? like : &none,
                       .events = events,
                       .report = report,
                       .sides = is_text(config) ? 1 : 2};
    report->sides = self.sides;
    self.threads = nm_threads_available(config->threads ? (int32_t)config->threads : nm_threads_default());
    bool existed;
    NM_TRY(nm_file_find(config->output, &existed, err));
    nm_folder_lock lock = {0};
    nm_status status = nm_folder_create(config->output, err);
    if (status == NM_OK)
        status = nm_folder_lock_acquire(&lock, config->output, err);
    if (status == NM_OK)
        status = run_steps(&self, err);
    release(&self);
    nm_folder_lock_release(&lock);
    if (status != NM_OK && !existed)
        rmdir(config->output); /* fails if it is not empty */
    return status;
}
