/* Preparation of parallel text or plain text: tokenize, lowercase, filter, learn and apply BPE, build
 * dictionaries, write ids. The text is streamed: memory grows with the vocabulary, not with the text.
 *
 * Files of the data folder (docs/formats.md), for parallel text:
 *     SPLIT.SIDE.ids, .off                            token sequences, each ending with </s> (data/corpus.h)
 *     SPLIT.SIDE.words                                of valid and test: the tokenized text before BPE, or
 *     the text itself
 *                                                     with the tokenizers sentencepiece and byte_level; of
 *                                                     documents, their words before BPE
 *     dict.source.txt, dict.target.txt                dictionaries
 *     units.source.txt, units.target.txt              counts of subwords, with bpe_vocabulary_threshold
 *     codes.bpe                                       with BPE
 *     sentencepiece.source.model, .target.model       with the tokenizer sentencepiece
 *     train.alignment.ids, .off                       word alignments (data/alignments.h)
 *     checksums.xxh128                                checksums (data/checksums.h)
 *     data.ini                                        the options
 * Plain text (format = text) has one side, "text", with dict.txt and sentencepiece.model; all lines are kept.
 *
 * The folder is locked while it is written. No existing file is replaced before all token files and tokenized
 * lines have been written; data.ini, which marks the folder as complete, is removed first and written
 * last. */
#pragma once

#include "base/text_input.h"
#include "base/corpus.h"
#include "data/pair_input.h"
#include "norma/option.h"
#include "norma/prepare.h"
#include "text/clean.h"
#include "text/documents.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

#define NM_PREPARE_FORMATS(C) C(NM_PREPARE_PARALLEL, "parallel") C(NM_PREPARE_TEXT, "text")
NM_CHOICES(nm_prepare_format, NM_PREPARE_FORMATS);
#define NM_ALIGNMENT_WORDS(C) C(NM_ALIGNMENT_RAW, "raw") C(NM_ALIGNMENT_TOKENS, "tokens")
NM_CHOICES(nm_alignment_words, NM_ALIGNMENT_WORDS);

typedef struct nm_prepare_config {
    nm_prepare_format format;
    nm_document_unit documents;
    const char *document_separator;
    const char *folder, *like, *train, *valid, *test, *alignments, *source_lang, *target_lang, *output;
    int64_t valid_every;
    const char *encoding, *valid_encoding, *test_encoding, *source_field, *target_field;
    nm_pair_format input_format;
    nm_punctuation punctuation;
    bool decode_entities, remove_non_printing;
    const char *tokenizer;
    nm_pretokenizer pretokenizer;
    bool aggressive, escape, lowercase, protect;
    const char *nonbreaking_prefixes, *source_prefixes, *target_prefixes;
    const char *user_symbols;
    int64_t bpe_merges, bpe_vocabulary;
    const char *codes;
    int64_t bpe_vocabulary_threshold;
    bool subword_sampling;
    const char *spm_type;
    int64_t spm_vocab_size;
    double spm_character_coverage;
    bool spm_byte_fallback;
    const char *spm_normalization, *spm_model, *spm_target_model;
    bool joint;
    const char *dict_source, *dict_target;
    int64_t min_count, max_words, dict_multiple;
    nm_vocab_order special_ids;
    const char *omit_symbols;
    int64_t min_length, max_length;
    double ratio;
    bool drop_copies, drop_duplicates;
    nm_on_invalid on_invalid;
    nm_alignment_words alignment_words; /* what the links of `alignments` number */
    int64_t threads;
} nm_prepare_config;

/* Options of the section [prepare], which data.ini contains, too. */
extern const nm_option nm_prepare_options[];
extern const nm_option_rule nm_prepare_rules[];
/* The options of the tokenizer of a side; spm: its SentencePiece model, or NULL. */
nm_tokenizer_options nm_prepare_tokenizer(const nm_prepare_config *config, bool target, const nm_spm *spm);
/* Parses the text of a data.ini; name: for messages. The caller releases *options, which own *config, also
 * after an error. NM_FORMAT, NM_USAGE. */
nm_status nm_prepare_read_settings(nm_options **options, const nm_prepare_config **config, const char *name,
                                   const char *text, nm_error *err);

/* Whether the data folder gets the split (0: train, 1: valid, 2: test): a text is given, or held out from the
 * training text. */
bool nm_prepare_has_split(const nm_prepare_config *config, int split);

/* Reasons for dropping a training pair, or a line or document of plain text: name, text, option that controls
 * it ("" if none). */
#define NM_DROP_LIST(D)                                                                                      \
    D(EMPTY, "empty", "")                                                                                    \
    D(SHORT, "too short", "prepare.min_length")                                                              \
    D(LONG, "too long", "prepare.max_length")                                                                \
    D(RATIO, "length ratio", "prepare.ratio")                                                                \
    D(INVALID, "invalid", "prepare.on_invalid")                                                              \
    D(COPY, "copy", "prepare.drop_copies")                                                                   \
    D(DUPLICATE, "duplicate", "prepare.drop_duplicates")

typedef enum nm_drop_reason {
#define D(name, text, option) NM_DROP_##name,
    NM_DROP_LIST(D)
#undef D
        NM_DROP_N,
    NM_DROP_NONE = NM_DROP_N
} nm_drop_reason;

/* Text of a reason; "kept" for NM_DROP_NONE. */
const char *nm_drop_reason_text(nm_drop_reason drop);
/* Full name of the option that controls a reason, "" if there is none. */
const char *nm_drop_reason_option(nm_drop_reason drop);

enum { NM_PREPARE_SPLITS = 3, NM_PREPARE_SIDES = 2, NM_PREPARE_EXAMPLES = 3 };
enum { NM_PREPARE_TEXT_BLOCK = 20 }; /* lines of plain text that valid_every holds out together */

/* A dropped pair. nm_prepare_report_release frees path and text. */
typedef struct nm_drop_example {
    char *path;                   /* of the source, if the split has several; otherwise NULL */
    int64_t line;                 /* in the file, from 1 */
    char *text[NM_PREPARE_SIDES]; /* truncated to a length that fits a terminal */
} nm_drop_example;

typedef struct nm_prepare_split_report {
    /* Numbers of pairs; held_out: training pairs that became validation pairs, which are not in `kept`. */
    int64_t pairs, kept, held_out, dropped[NM_DROP_N];
    /* The first dropped pairs for each reason. */
    nm_drop_example examples[NM_DROP_N][NM_PREPARE_EXAMPLES];
    int n_examples[NM_DROP_N];
    int64_t words[NM_PREPARE_SIDES];                             /* in kept lines, before BPE */
    int64_t tokens[NM_PREPARE_SIDES], unknown[NM_PREPARE_SIDES]; /* after BPE, without </s> */
    int64_t repeated; /* pairs of valid or test that also occur in the training text */
    /* With the Moses tokenizer: kept pairs with entities or marks of BPE, which text that is tokenized
     * already has. */
    int64_t tokenized;
    char *columns; /* lines that describe which columns of tables are read; NULL: no tables */
} nm_prepare_split_report;

typedef struct nm_prepare_report {
    int sides;                                         /* 1 for plain text */
    nm_prepare_split_report splits[NM_PREPARE_SPLITS]; /* train, valid, test */
    int64_t word_types[NM_PREPARE_SIDES];              /* of the training text */
    int64_t merges, dict_size[NM_PREPARE_SIDES];
    int64_t pieces[NM_PREPARE_SIDES]; /* of the SentencePiece models; 0 without them */
    int64_t links;                    /* between subwords of the kept training pairs */
} nm_prepare_report;

/* What a document of plain text is. */
nm_document_rule nm_prepare_document_rule(const nm_prepare_config *config);
/* Initializes the cleaning of raw text of a side: 0 source, 1 target. */
void nm_prepare_cleaner_init(nm_cleaner *cleaner, const nm_prepare_config *config, int side);

/* "train", "valid", "test". */
extern const char *const nm_prepare_split_names[NM_PREPARE_SPLITS];
/* "source" or "target"; "text" with one side. */
const char *nm_prepare_side_name(int sides, int side);
/* Opens one side of a split. A missing validation or test split is not an error and leaves *corpus
 * unchanged. */
nm_status nm_prepare_open_split(nm_corpus *corpus, const char *folder, int split, int sides, int side,
                                int32_t vocab_size, nm_error *err);
/* Checks that norma prepare has written the folder with this number of sides. NM_USAGE: `folder` is empty;
 * NM_IO: it has no data.ini; NM_MISMATCH: it has the other number of sides. */
nm_status nm_prepare_check_folder(const char *folder, int sides, nm_error *err);
/* Number of training sequences of a folder with 1 or 2 sides, and number of tokens of the last side. */
nm_status nm_prepare_measure(const char *folder, int sides, int64_t *n_sequences, int64_t *n_tokens,
                             nm_error *err);

/* Frees the memory of the report; also after nm_prepare_run has failed. */
void nm_prepare_report_release(nm_prepare_report *report);

/* The text processing of prepare.like, instead of what would be learned or read from files: contents of
 * codes.bpe, of the dictionaries, of units.txt and of the SentencePiece models of each side; NULL: none. */
typedef struct nm_prepare_existing {
    const char *codes, *dictionaries[2], *subwords[2];
    const void *spm[2];
    size_t spm_bytes[2];
} nm_prepare_existing;

/* The options that prepare.like determines; the last entry is NULL. */
extern const char *const nm_prepare_like_options[];

/* Runs the preparation. options has the section [prepare]; all option values are written to data.ini. like:
 * NULL, or with prepare.like, whose settings the options have. The caller releases the report. Only the
 * function `progress` of the events is called. Errors: see nm_prepare_folder. */
nm_status nm_prepare_run(const nm_options *options, const nm_prepare_existing *like,
                         const nm_prepare_events *events, nm_prepare_report *report, nm_error *err);
