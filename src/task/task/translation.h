/* Translation: texts, data and batches of the task. */
#pragma once

#include "base/line_list.h"
#include "data/subword_sampler.h"
#include "model/decode.h"
#include "text/metric_tokenizer.h"
#include "task/model_texts.h"
#include "task/tasks.h"
#include "text/tokenizer.h"
#include "text/vocab.h"
#include "train/train_options.h"

enum {
    NM_TEXT_SETTINGS,
    NM_TEXT_SOURCE,
    NM_TEXT_TARGET,
    NM_TEXT_CODES,
    NM_TEXT_SUBWORDS,
    NM_TEXT_TARGET_SUBWORDS,
    NM_TRANSLATION_TEXTS
};
enum { NM_TRANSLATION_SPLITS = 3 };

typedef struct nm_translation_config { /* section [data] */
    const char *folder;
    nm_example_order order;
    int64_t max_length;
    double word_dropout, alignment_weight;
    bool mask_words;
    nm_subword_sampling sampling;
} nm_translation_config;

typedef struct nm_translation_parts {
    /* data.ini, dictionaries, BPE codes (NULL: no BPE), subwords of the source and of the target (or NULL) */
    char *texts[NM_TRANSLATION_TEXTS];
    nm_vocab *source_vocab, *target_vocab;
    nm_vocab *source_subwords, *target_subwords; /* subwords that BPE may produce; NULL: all */
    nm_model_spm spm[2];                         /* of source and target; empty without SentencePiece */
    /* One that keeps the text, for the score, which decodes translations; otherwise not open. */
    nm_tokenizer target_tokenizer;
    nm_metric_tokenizer bleu_tokenizer;        /* for the target language; open like target_tokenizer */
    nm_corpus sides[NM_TRANSLATION_SPLITS][2]; /* source and target of each split; empty after open_model */
    /* Lines of the validation and the test set that are scored and shown; read at the start, because a run
     * does not depend on later changes of the data folder. Empty after open_model. */
    nm_line_list words[NM_TRANSLATION_SPLITS][2];
    nm_corpus alignments;            /* of the training pairs; empty without guided alignment */
    nm_subword_sampler *samplers[2]; /* for source and target of the training text; NULL: none */
    nm_batching batching[NM_TRANSLATION_SPLITS];
    uint8_t *allowed; /* data.mask_words: host [target size], 1 for tokens that may be output; NULL: all */
} nm_translation_parts;

/* Input of the first target position: eos as in fairseq, or bos as in Transformers without Tears. */
/* The special tokens of a target dictionary. *excluded: heap, the caller frees it after nm_decoder_create. */
nm_special_tokens nm_translation_special_tokens(const nm_vocab *vocab, bool **excluded);
static inline int32_t nm_translation_first_id(const nm_vocab *vocab)
{
    return vocab->order == NM_VOCAB_TEARS ? vocab->bos : vocab->eos;
}

/* The file of the words of a side of a split, heap; and its lines. */
char *nm_translation_words_path(const nm_task *task, nm_split split, int target);
nm_status nm_translation_read_words(nm_line_list *list, const char *path, nm_error *err);
/* Fills the score of n translations, with or without </s>, of the first sentences of a split against the
 * references of the data folder. */
nm_status nm_translation_count(const nm_task *task, nm_split split, const nm_id_list *found, size_t n,
                               nm_task_score *score, nm_error *err);
/* Translates the first `examples` sentences of a split (0: all) and computes the BLEU score, see
 * translation_score.c. */
nm_status nm_translation_score(nm_task *task, nm_model *model, nm_split split, int64_t examples,
                               nm_task_score *score, nm_error *err);
