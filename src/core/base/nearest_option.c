#include "base/nearest_option.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/edit_distance.h"

/* Names that other toolkits use, and options with this meaning; of several that exist, the first one is suggested. */
static const struct {
    const char *given, *option;
} names_of_other_toolkits[] = {
    {"batch_size", "batch"},
    {"batch_size", "max_tokens"},
    {"batch_size", "batch_tokens"},
    {"steps", "updates"},
    {"max_steps", "updates"},
    {"train_steps", "updates"},
    {"learning_rate", "lr"},
    {"clip_norm", "max_grad_norm"},
    {"grad_clip", "max_grad_norm"},
    {"gradient_clip", "max_grad_norm"},
    {"update_freq", "shards"},
    {"accum_count", "shards"},
    {"gradient_accumulation_steps", "shards"},
    {"depth", "layers"},
    {"depth", "encoder_layers"},
    {"n_layers", "encoder_layers"},
    {"num_layers", "encoder_layers"},
    {"hidden_size", "width"},
    {"d_model", "width"},
    {"save_dir", "folder"},
    {"output", "folder"},
    {"output_dir", "folder"},
    {"seq_len", "context"},
    {"seq_len", "max_length"},
    {"eval_steps", "validate_every"},
    {"max_new_tokens", "tokens"},
    /* fairseq */
    {"activation_dropout", "relu_dropout"},
    {"adam_betas", "beta2"},
    {"arch", "preset"},
    {"best_checkpoint_metric", "best_by"},
    {"destdir", "output"},
    {"encoder_normalize_before", "norm_position"},
    {"eval_bleu", "score"},
    {"finetune_from_model", "tune"},
    {"fp16", "precision"},
    {"joined_dictionary", "joint"},
    {"keep_last_epochs", "keep_last"},
    {"lenpen", "alpha"},
    {"max_epoch", "epochs"},
    {"max_update", "updates"},
    {"nwordssrc", "max_words"},
    {"padding_factor", "dict_multiple"},
    {"remove_bpe", "output_format"},
    {"restore_file", "resume"},
    {"save_interval_updates", "save_every"},
    {"share_all_embeddings", "share_embeddings"},
    {"srcdict", "dict_source"},
    {"tgtdict", "dict_target"},
    {"thresholdsrc", "min_count"},
    {"unkpen", "unknown"},
    {"warmup_init_lr", "init_lr"},
    {"warmup_updates", "warmup"},
    {"workers", "threads"},
    /* Marian */
    {"after_batches", "updates"},
    {"allow_unk", "unknown"},
    {"cpu_threads", "threads"},
    {"dec_depth", "decoder_layers"},
    {"dim_emb", "width"},
    {"disp_freq", "log_every"},
    {"enc_depth", "encoder_layers"},
    {"learn_rate", "lr"},
    {"lr_warmup", "warmup"},
    {"max_length_factor", "max_length_a"},
    {"mini_batch_words", "max_tokens"},
    {"normalize", "alpha"},
    {"optimizer_delay", "shards"},
    {"save_freq", "save_every"},
    {"tied_embeddings_all", "share_embeddings"},
    {"transformer_dim_ffn", "ff"},
    {"transformer_dropout", "dropout"},
    {"transformer_heads", "heads"},
    {"valid_freq", "validate_every"},
    {"valid_metrics", "best_by"},
    {"vocabs", "dict_source"},
    {"word_scores", "json"},
    /* OpenNMT-py and transformers */
    {"dec_layers", "decoder_layers"},
    {"enc_layers", "encoder_layers"},
    {"keep_checkpoint", "keep_last"},
    {"num_beams", "beam"},
    {"replace_unk", "unknown"},
    {"save_checkpoint_steps", "save_every"},
    {"src_vocab", "dict_source"},
    {"tgt_vocab", "dict_target"},
    {"train_from", "tune"},
    {"transformer_ff", "ff"},
    {"valid_steps", "validate_every"},
    {"warmup_steps", "warmup"},
    {"word_vec_size", "width"},
};

enum { N_NAMES = sizeof names_of_other_toolkits / sizeof *names_of_other_toolkits };

/* Kinds of similarity, the best one first. A name of another toolkit has SAME_MEANING + its index in the table. */
enum { SAME_NAME, SAME_MEANING, SAME_BEGINNING = SAME_MEANING + N_NAMES, NEAR, SAME_END, DIFFERENT };

const char *nm_option_name(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

static uint64_t similarity(const char *given_path, const char *known_path)
{
    enum { SHORTEST_PART = 3 };
    const char *given = nm_option_name(given_path), *known = nm_option_name(known_path);
    size_t n_given = strlen(given), n_known = strlen(known);
    if (!strcmp(given, known) || nm_edit_distance(given_path, known_path) <= 1)
        return SAME_NAME;
    for (uint64_t i = 0; i < N_NAMES; i++)
        if (!strcmp(given, names_of_other_toolkits[i].given) &&
            !strcmp(known, names_of_other_toolkits[i].option))
            return SAME_MEANING + i;
    if (n_given >= SHORTEST_PART && !strncmp(known, given, n_given))
        return SAME_BEGINNING;
    if (nm_edit_distance_is_near(nm_edit_distance(given, known), given))
        return NEAR;
    if (n_given >= SHORTEST_PART && n_known > n_given && known[n_known - n_given - 1] == '_' &&
        !strcmp(known + n_known - n_given, given))
        return SAME_END;
    return DIFFERENT;
}

static uint64_t n_sections(const char *path)
{
    uint64_t n = 0;
    for (; (path = strchr(path, '.')) != NULL; path++)
        n++;
    return n;
}

/* norma compare has in its own section what norma train has in [run]. */
static bool is_of_runs(const char *given, const char *known)
{
    static const char train[] = "run.", compare[] = "compare.";
    return !strncmp(given, train, strlen(train)) && !strncmp(known, compare, strlen(compare)) &&
           !strcmp(given + strlen(train), known + strlen(compare));
}

/* For comparisons only: the kind, then the edit distance, the number of sections, and the length. */
static uint64_t distance_to(const char *given, const char *known)
{
    if (is_of_runs(given, known))
        return 0;
    int whole = 2 * nm_edit_distance(given, known);
    int name = 2 * nm_edit_distance(nm_option_name(given), nm_option_name(known)) + 3;
    return (similarity(given, known) << 32) + ((uint64_t)(whole < name ? whole : name) << 16) +
           (n_sections(known) << 10) + strlen(known);
}

char *nm_nearest_option(const nm_options *options, const char *given)
{
    char *best = NULL, *known;
    uint64_t best_distance = (uint64_t)DIFFERENT << 32;
    for (size_t i = 0; (known = nm_options_path(options, i)) != NULL; i++) {
        uint64_t d = distance_to(given, known);
        if (d < best_distance) {
            free(best);
            best = known;
            best_distance = d;
        } else {
            free(known);
        }
    }
    return best;
}
