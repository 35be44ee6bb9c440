/* Sections of options that an object of the library and a command of the program share: the fields of a
 * configuration, and the rows of type T. A command adds its own rows. */
#ifndef NM_SECTIONS_H
#define NM_SECTIONS_H

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

/* clang-format on */

#endif
