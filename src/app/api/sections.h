/* Sections of options that an object of the library and a command of the program share: the fields of a
 * configuration, and the rows of type T. A command adds its own rows. */
#pragma once

#include "base/text_input.h"
#include "model/lm.h"
#include "task/lm_task.h"
#include "task/shortlist_file.h"
#include "task/text_coder.h"
#include "text/tags.h"

/* clang-format off */

/* Alignment of words: [translate], [rescore]. */
#define NM_ALIGNMENT_FIELDS \
    bool alignment; \
    int64_t alignment_layer, alignment_head
#define NM_ALIGNMENT_ROWS(T) \
    NM_OPTION(T, alignment, "false", 0, 1, \
        "Align the words of the target to those of the source by attention, in Pharaoh format or as words " \
        "in JSON."), \
    NM_OPTION(T, alignment_layer, "0", 0, 1000, \
        "Decoder layer of the attention, from 1; 0: that of the head trained by guided alignment, " \
        "otherwise the penultimate one."), \
    NM_OPTION(T, alignment_head, "0", 0, 1000, \
        "Head of the attention, from 1; 0: the head trained by guided alignment, otherwise the mean of all " \
        "heads.")

/* [translate]: formats, and the other rows. */
#define NM_TRANSLATE_FIELDS \
    nm_text_format input_format, output_format; \
    const char *shortlist; \
    int64_t shortlist_best, shortlist_frequent; \
    NM_ALIGNMENT_FIELDS
#define NM_TRANSLATE_FORMAT_ROWS(T) \
    NM_CHOICE(T, input_format, "raw", NM_TEXT_FORMATS, \
        "Format of the input: raw text; tokenized text as in the .words files of norma prepare, which is " \
        "raw text with SentencePiece and byte-level BPE; or subwords."), \
    NM_CHOICE(T, output_format, "raw", NM_TEXT_FORMATS, \
        "Format of the translations: raw text; tokenized text, which is raw text with SentencePiece and " \
        "byte-level BPE; or subwords.")
#define NM_TRANSLATE_ROWS(T) NM_SHORTLIST_OPTIONS(T), NM_ALIGNMENT_ROWS(T)

/* [perplexity] */
#define NM_PERPLEXITY_FIELDS \
    int64_t context, batch_tokens; \
    bool drop_incomplete; \
    const char *encoding, *document_separator; \
    int documents
#define NM_PERPLEXITY_ROWS(T) \
    NM_OPTION(T, context, "0", 0, NM_LM_MAX_CONTEXT, \
        "Minimum number of preceding tokens in sliding windows, where the text has them; " \
        "0: segments as in training."), \
    NM_OPTION(T, drop_incomplete, "false", 0, 1, \
        "Drop the last segment if it is shorter than model.context."), \
    NM_OPTION(T, batch_tokens, "2048", 1, 1 << 24, \
        "Number of tokens in a batch; the result does not depend on it."), \
    NM_TEXT_ENCODING_OPTION(T), \
    NM_LM_DOCUMENT_OPTIONS(T)

/* [tag] */
#define NM_TAG_ROWS(T) \
    NM_WORD(T, scheme, "auto", "auto" NM_TAG_SCHEMES(NM_CHOICE_TEXT), \
        "Scheme of the predicted tags; auto: that of the training file.")

/* [text]: the settings of the filters of norma/text.h. */
#define NORMAL_FORMS(C) \
    C(FORM_NFC, "nfc") \
    C(FORM_NFD, "nfd") \
    C(FORM_NFKC, "nfkc") \
    C(FORM_NFKD, "nfkd") C(FORM_PUNCTUATION, "punctuation") C(FORM_PRINTABLE, "printable")
NM_CHOICES(normal_form, NORMAL_FORMS);

#define SIDES(C) C(SIDE_SOURCE, "source") C(SIDE_TARGET, "target")
NM_CHOICES(text_side, SIDES);
#define NM_TEXT_FILTER_FIELDS \
    const char *like, *tokenizer, *language, *nonbreaking_prefixes, *user_symbols, *codes, *spm_model; \
    text_side side; \
    nm_text_format format; \
    normal_form form; \
    nm_pretokenizer pretokenizer; \
    bool aggressive, escape, protect, lowercase, undo
#define NM_TEXT_FILTER_ROWS(T) \
    NM_OPTION(T, like, "", 0, 0, \
        "Data folder, model file or run folder, whose settings, BPE codes and SentencePiece model are " \
        "used."), \
    NM_CHOICE(T, side, "source", SIDES, "Side of the data folder or model of --like."), \
    NM_OPTION(T, undo, "false", 0, 0, \
        "Reverse the step: join pieces, subwords or tokens to text."), \
    NM_WORD(T, tokenizer, "moses", NM_TOKENIZER_NAMES, "Tokenizer without --like."), \
    NM_CHOICE(T, pretokenizer, "gpt2", NM_PRETOKENIZERS, \
        "Rules of the tokenizer byte_level, which split text into words."), \
    NM_OPTION(T, language, "en", 0, 0, \
        "Language of the Moses tokenizer or of its punctuation rules, a code of two or three letters."), \
    NM_OPTION(T, aggressive, "false", 0, 0, \
        "Splitting of words at hyphens into @-@ by the Moses tokenizer."), \
    NM_OPTION(T, escape, "true", 0, 0, \
        "Escaping of & | < > ' \" [ ] as entities by the Moses tokenizer."), \
    NM_OPTION(T, protect, "false", 0, 0, \
        "Addresses of pages, mail addresses and tags of markup as one token each by the Moses tokenizer."), \
    NM_OPTION(T, nonbreaking_prefixes, "", 0, 0, \
        "File of abbreviations for the Moses tokenizer in the format of its nonbreaking_prefixes, or " \
        "folder " \
        "with a file nonbreaking_prefix.LANGUAGE; empty: Norma's own list of the language."), \
    NM_OPTION(T, lowercase, "false", 0, 0, "Lowercasing."), \
    NM_OPTION(T, user_symbols, "", 0, 0, \
        "User-defined symbols, comma-separated, such as <2en>,<num>, each of which is one token."), \
    NM_OPTION(T, codes, "", 0, 0, "File of BPE codes for subword."), \
    NM_OPTION(T, spm_model, "", 0, 0, \
        "SentencePiece model; selects the tokenizer sentencepiece."), \
    NM_CHOICE(T, format, "raw", NM_WORD_FORMATS, \
        "Format of the text that subword reads, or writes with --undo."), \
    NM_CHOICE(T, form, "nfkc", NORMAL_FORMS, \
        "Normalization without --like and without a SentencePiece model: a Unicode normal form; " \
        "punctuation like Moses' normalize-punctuation.perl for the language; " \
        "printable replaces non-printing characters by spaces.")

/* [shortlist]: nm_shortlist_learn. */
#define NM_SHORTLIST_LEARN_FIELDS \
    int64_t iterations, max_pairs, best, threads; \
    double min_probability
#define NM_SHORTLIST_LEARN_ROWS(T) \
    NM_OPTION(T, best, "100", 1, 1 << 24, "Maximum number of target tokens per source token."), \
    NM_OPTION(T, min_probability, "0.0001", 0, 1, \
        "Minimum probability of a target token given a source token."), \
    NM_OPTION(T, iterations, "5", 1, 1000, "Iterations of EM."), \
    NM_OPTION(T, max_pairs, "1000000", 1, 1e15, \
        "Maximum number of training pairs; of more, as many are used, at equal distances."), \
    NM_OPTION(T, threads, "0", 0, 1024, \
        "Number of threads; 0: one per core, at most the CPU limit of the container.")

/* clang-format on */
