/* Language modeling: segments of text streams, the negative log-likelihood of texts, encoding and decoding of
 * text. */
#pragma once

#include "base/line_list.h"
#include "data/subword_sampler.h"
#include "model/lm.h"
#include "task/model_texts.h"
#include "task/tasks.h"
#include "text/bpe.h"
#include "text/documents.h"
#include "text/tokenizer.h"
#include "text/vocab.h"
#include "train/train_options.h"

enum { NM_LM_SETTINGS, NM_LM_DICTIONARY, NM_LM_CODES, NM_LM_SUBWORDS, NM_LM_TEXTS };
enum { NM_LM_SPLITS = 3 };
enum { NM_LM_BLOCK_TOKENS = 64 }; /* bootstrap resamples consist of blocks of consecutive tokens */

#define NM_LM_ORDERS(C) C(NM_LM_ORDER_STREAMS, "streams") C(NM_LM_ORDER_SHUFFLED, "shuffled")
NM_CHOICES(nm_lm_order, NM_LM_ORDERS);
#define NM_LM_INCOMPLETES(C) C(NM_LM_INCOMPLETE_SCORE, "score") C(NM_LM_INCOMPLETE_DROP, "drop")
NM_CHOICES(nm_lm_incomplete, NM_LM_INCOMPLETES);

typedef struct nm_lm_task_config { /* section [data] */
    const char *folder;
    nm_lm_order order;
    nm_lm_incomplete incomplete; /* last, shorter segments of streams */
    int64_t eval_streams;
    double word_dropout;
    nm_subword_sampling sampling;
} nm_lm_task_config;

typedef struct nm_lm_parts {
    char *texts[NM_LM_TEXTS];       /* data.ini, dict.txt, codes.bpe (NULL: no BPE), units.txt or NULL */
    nm_vocab *vocab, *subwords;     /* subwords: those that BPE may produce; NULL: all */
    uint8_t *allowed;               /* [V]: 0 for omitted symbols; NULL: all tokens may be output */
    nm_model_spm spm;               /* empty without SentencePiece */
    nm_corpus splits[NM_LM_SPLITS]; /* empty after open_model */
    nm_subword_sampler *sampler;    /* of the training text; NULL: none */
    const nm_corpus *sampled;       /* the sampled segmentation of the current epoch; NULL: the stored one */
} nm_lm_parts;

/* A text of n tokens is divided into contiguous streams of equal length (the remainder is not used), and each
 * stream into segments of `length` tokens, of which the last may be shorter. Each token is predicted from the
 * preceding tokens of its segment and the token before the segment: the input of position 0 is the preceding
 * token of the text, or `before` for the first token. */
typedef struct nm_lm_segments {
    const int32_t *ids;                            /* [n], not owned */
    int64_t n, streams, stream_length, per_stream; /* n, stream_length: in tokens; per_stream: in segments */
    int32_t length, before;
} nm_lm_segments;

/* incomplete: keep shorter segments. NM_USAGE if there are no segments. */
nm_status nm_lm_segments_make(nm_lm_segments *segments, const int32_t *ids, int64_t n, int64_t streams,
                              int32_t length, bool incomplete, int32_t before, nm_error *err);
/* Returns the index of the first token of segment i; *length: number of its tokens. Segments are ordered by
 * position in the stream, then by stream. */
int64_t nm_lm_segment_begin(const nm_lm_segments *segments, int64_t i, int32_t *length);
/* The batch of n sequences, allocated in the arena: tokens begins[i] .. begins[i] + lengths[i] - 1 of the
 * text. The input of the first token of a sequence is the token before it, or `before` where starts[i] is
 * true (NULL: only at the first token). */
nm_batch nm_lm_pack(const int32_t *ids, int32_t before, const int64_t *begins, const bool *starts,
                    const int32_t *lengths, int32_t n, nm_arena *arena);

typedef struct nm_lm_scoring {
    /* sliding windows: minimum number of preceding tokens, where the text has them; 0: segments */
    int64_t context;
    int64_t max_tokens; /* maximum number of tokens per batch */
    bool drop_incomplete;
    int32_t before;        /* input of the first token */
    const nm_vocab *vocab; /* its omitted symbols have no probability; NULL: none is omitted */
    /* [n_ends] ends of the texts in the ids, which are scored independently; NULL: the ids are one text. */
    const int64_t *ends;
    size_t n_ends;
    /* [n], negative log-likelihood of each scored token, in the backend's precision; NULL: not written */
    double *token_nll;
    /* processes that divide the batches, all of which call; without token_nll. NULL: a single process */
    nm_comm *comm;
    const nm_stop *stop; /* see nm_task */
} nm_lm_scoring;

typedef struct nm_lm_scored {
    int64_t tokens, left_out; /* numbers of tokens that are scored and not scored */
    double nll;               /* sum over the scored tokens, in nats */
    double unknown_nll;       /* the part of unknown tokens; 0 without nm_lm_scoring.vocab */
    int64_t unknown;          /* number of scored unknown tokens */
    int64_t *counts; /* [n_blocks][2], heap: nll in 1e-6 nats and number of tokens of consecutive blocks */
    size_t n_blocks, capacity;
} nm_lm_scored;

/* Adds one block of at most NM_LM_BLOCK_TOKENS tokens. */
void nm_lm_scored_add(nm_lm_scored *scored, double nll, int64_t tokens);
/* The perplexity as a score, without signature; the score owns scored->counts from then on. */
void nm_lm_scored_fill(const nm_lm_scored *scored, nm_task_score *score);
void nm_lm_scored_release(nm_lm_scored *scored);
/* Scores n ids in windows of model.context tokens. Adds to *scored, which the caller initializes with {0} and
 * releases. NM_USAGE: settings that the model does not allow; NM_MISMATCH: an omitted symbol among the ids;
 * NM_DIVERGED: log probabilities are not finite; NM_MEMORY. */
nm_status nm_lm_score_ids(nm_model *model, const int32_t *ids, int64_t n, const nm_lm_scoring *how,
                          nm_lm_scored *scored, nm_error *err);
/* exp(nll / tokens) of nm_lm_scored.counts. */
double nm_lm_perplexity_of_counts(const int64_t *counts, const void *context);
nm_status nm_lm_task_score(nm_task *task, nm_model *model, nm_split split, int64_t examples,
                           nm_task_score *score, nm_error *err);

/* The input from which the first token of a text is predicted (model.first_input). */
static inline int32_t nm_lm_first_input(const nm_lm_config *config, const nm_vocab *vocab)
{
    return config->first_input == NM_LM_FIRST_BOS ? vocab->bos : vocab->eos;
}

typedef struct nm_lm_text nm_lm_text;

/* Values of perplexity.documents: as in training, or 1 + an nm_document_unit. */
enum { NM_DOCUMENTS_AS_TRAINED };
#define NM_LM_DOCUMENT_UNITS(C) C(NM_DOCUMENTS_AS_TRAINED, "auto") NM_DOCUMENT_UNITS(C)
typedef int NM_LM_DOCUMENT_UNITS_ENUM;

/* Rows of the documents of a text to score. */
#define NM_LM_DOCUMENT_OPTIONS(type)                                                                         \
    NM_CHOICE(type, documents, "auto", NM_LM_DOCUMENT_UNITS,                                                 \
              "Documents of the text, which end with </s>: lines, the lines between separators, or the "     \
              "whole file; auto: as in training. Several lines require a tokenizer that keeps newlines."),   \
        NM_OPTION(type, document_separator, "", 0, 0,                                                        \
                  "Line that separates documents; empty: an empty line.")
#define NM_LM_DOCUMENT_RULE                                                                                  \
    {                                                                                                        \
        "perplexity.document_separator", "perplexity.documents", "separated",                                \
            "only those documents have separators", NULL                                                     \
    }

/* Encoder and decoder for the texts of a loaded model; parts must outlive it. */
nm_status nm_lm_text_create(nm_lm_text **text, const nm_lm_parts *parts, nm_error *err);
void nm_lm_text_free(nm_lm_text *text);
/* What a document is in the training text of the model. */
nm_document_rule nm_lm_document_rule(const nm_lm_text *text);
/* NM_USAGE unless the model's tokenizer keeps newlines, which documents of several lines require. name:
 * option that selects them */
nm_status nm_lm_check_documents(const nm_lm_text *text, const char *name, nm_error *err);
/* NM_MISMATCH if the line or document has a token that the vocabulary lacks, and <unk> is omitted
 * (prepare.omit_symbols). where: begins the message. */
nm_status nm_lm_check_known(nm_lm_text *text, const char *line, size_t bytes, const char *where,
                            nm_error *err);
/* Appends the ids of a line or document, without eos; returns the number of unknown tokens. */
size_t nm_lm_encode(nm_lm_text *text, const char *line, size_t bytes, nm_ids *ids);
/* Decodes ids and appends the text to out; eos ends a line, or a document, which adds nothing. */
void nm_lm_decode(nm_lm_text *text, const int32_t *ids, size_t n, nm_buffer *out);
/* Whether the tokens contain the spaces of the text. */
bool nm_lm_keeps_text(const nm_lm_text *text);
/* Counts of a text before tokenization: words are separated by whitespace, characters are Unicode code
 * points. Each newline and eos is a word and a character. */
enum { NM_LM_ALPHABET_BYTES = 0x110000 / 8 };
typedef struct nm_lm_counts {
    int64_t words, characters;
    int64_t unknown; /* tokens that are not in the dictionary */
    int64_t hidden;  /* characters of these tokens, and one end for each */
    /* [NM_LM_ALPHABET_BYTES] bit per code point that occurs and is no whitespace, heap; NULL: none. Freed by
     * the owner. */
    unsigned char *alphabet;
} nm_lm_counts;
typedef struct nm_lm_file {
    const char *path, *encoding; /* as those of nm_text_open */
    nm_document_rule rule;
} nm_lm_file;
/* Appends the ids of a text file, each document with eos, and adds to the counts. NM_INTERRUPTED after a
 * request to stop (NULL: never). */
nm_status nm_lm_encode_file(nm_lm_text *text, const nm_lm_file *file, const nm_stop *stop, nm_ids *ids,
                            nm_lm_counts *counts, nm_error *err);
