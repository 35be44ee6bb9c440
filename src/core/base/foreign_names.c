#include "base/foreign_names.h"

#include <string.h>

/* scripts/migration_tables.py reads the rows of this file: a row has one or two lines, a cell one string. */
/* clang-format off */
static const nm_foreign_row training[] = {
    {{"`--arch transformer_iwslt_de_en`, `transformer_wmt_en_de` (`_big`)", "`--type transformer`",
        "`encoder_type transformer`, `decoder_type transformer`"},
        "`model.preset = iwslt`, `base`, `big`"},
    {{"`--encoder-embed-dim`, `--decoder-embed-dim`", "`--dim-emb`", "`hidden_size`, `word_vec_size`"},
        "`model.width`"},
    {{"`--encoder-ffn-embed-dim`, `--decoder-ffn-embed-dim`", "`--transformer-dim-ffn`", "`transformer_ff`"},
        "`model.ff`"},
    {{"`--encoder-layers`", "`--enc-depth`", "`enc_layers`, `layers`"}, "`model.encoder_layers`"},
    {{"`--decoder-layers`", "`--dec-depth`", "`dec_layers`"}, "`model.decoder_layers`"},
    {{"`--encoder-attention-heads`, `--decoder-attention-heads`", "`--transformer-heads`", "`heads`"},
        "`model.heads`"},
    {{"`--encoder-normalize-before`, `--decoder-normalize-before`",
        "`--transformer-preprocess n`, `--transformer-postprocess da`, `--transformer-postprocess-top n`",
        "always"}, "`model.norm_position = pre` (default)"},
    {{"default", "default", ""}, "`model.norm_position = post`"},
    {{"`--share-all-embeddings`", "`--tied-embeddings-all`",
        "`share_embeddings` with `share_decoder_embeddings`"}, "`model.share_embeddings = all` (default)"},
    {{"`--share-decoder-input-output-embed`", "`--tied-embeddings`", "`share_decoder_embeddings`"},
        "`model.share_embeddings = decoder`"},
    {{"default", "default", "default"}, "`model.share_embeddings = none`"},
    {{"", "unless `--output-omit-bias`", "always"}, "`model.output_bias = true`"},
    {{"`--activation-fn relu` (default)", "`--transformer-ffn-activation swish` (default)",
        "`pos_ffn_activation_fn relu` (default)"}, "`model.activation = relu` (default), `silu`"},
    {{"`--dropout`", "`--transformer-dropout`", "`dropout`"},
        "`model.dropout` and `model.embedding_dropout`; OpenNMT-py also `model.relu_dropout`"},
    {{"`--layernorm-embedding`", "`--transformer-postprocess-emb n`", ""}, "`model.embedding_norm = layer`"},
    {{"`--attention-dropout`", "`--transformer-dropout-attention`", "`attention_dropout`"},
        "`model.attention_dropout`"},
    {{"`--activation-dropout`, `--relu-dropout`", "`--transformer-dropout-ffn`", ""}, "`model.relu_dropout`"},
    {{"`--batch-size`, `--max-sentences`", "`--mini-batch`", "`batch_size` in sentences"},
        "`data.batch` (classification), otherwise `train.max_tokens`"},
    {{"`--max-tokens`", "`--mini-batch-words`, `--mini-batch-fit`", "`batch_type: tokens`"},
        "`train.max_tokens`"},
    {{"", "`--max-length`", ""}, "`data.max_length`"},
    {{"`--update-freq N`", "`--optimizer-delay N`", "`accum_count`"}, "`train.shards = N`"},
    {{"`--max-update`", "`--after 100Ku`, `--after-batches`", "`train_steps`"}, "`train.updates`"},
    {{"`--max-epoch`", "`--after 20e`, `--after-epochs`", ""}, "`train.epochs`"},
    {{"`--stop-time-hours`", "", ""}, "`train.seconds`"},
    {{"`--optimizer adam`", "`--optimizer adam`", "`optim adam`"},
        "`optim.name = adam-fairseq` (default), `adam`"},
    {{"`--adam-betas '(0.9, 0.98)'`", "`--optimizer-params 0.9 0.98 1e-9`", "`adam_beta1`, `adam_beta2`"},
        "`optim.beta1`, `optim.beta2`"},
    {{"`--adam-eps`", "", ""}, "`optim.eps`"},
    {{"`--weight-decay`", "", "`weight_decay`"}, "`optim.weight_decay`"},
    {{"`--lr`", "`--learn-rate`", "`learning_rate`"}, "`schedule.lr`"},
    {{"`--lr-scheduler`", "`--lr-decay-inv-sqrt`", "`decay_method`"},
        "`schedule.name`, see [formulas](#formulas)"},
    {{"`--warmup-updates`", "`--lr-warmup`", "`warmup_steps`"}, "`schedule.warmup`"},
    {{"`--warmup-init-lr`", "`--lr-warmup-start-rate`", ""}, "`schedule.init_lr`"},
    {{"`--stop-min-lr`, `--min-lr`", "", ""}, "`schedule.min_lr`"},
    {{"`--ema-decay D`", "`--exponential-smoothing`", "`average_decay`"},
        "`train.ema_decay = D`; Marian and OpenNMT-py have 1 - D"},
    {{"`--clip-norm` (0)", "`--clip-norm` (1)", "`max_grad_norm` (5)"}, "`train.max_grad_norm` (0: off)"},
    {{"`--label-smoothing`", "`--label-smoothing`", "`label_smoothing`"}, "`train.label_smoothing`"},
    {{"`--validate-interval-updates`, `--validate-interval`", "`--valid-freq`", "`valid_steps`"},
        "`train.validate_every` (0: after each epoch)"},
    {{"`--eval-bleu`", "`--valid-metrics bleu`", ""}, "`train.score`"},
    {{"`--best-checkpoint-metric bleu`, `--maximize-best-checkpoint-metric`",
        "first of `--valid-metrics`, `--keep-best`, `--early-stopping-on`", ""},
        "`train.best_by = score` (default: `loss`)"},
    {{"`--patience N`", "`--early-stopping N`", "`early_stopping N`"},
        "`train.patience = N`: training ends at the N-th validation in succession without a new best"},
    {{"`--save-interval-updates`, `--save-interval`", "`--save-freq`", "`save_checkpoint_steps`"},
        "`train.save_every`; a checkpoint is also written at each validation"},
    {{"`--keep-interval-updates`, `--keep-last-epochs`", "", "`keep_checkpoint`"}, "`train.keep_last`"},
    {{"`--save-dir`", "`--log`", "`save_model`"}, "`run.folder`"},
    {{"`--restore-file`", "", ""}, "`run.resume`"},
    {{"`--finetune-from-model`, `--reset-optimizer`", "`--pretrained-model`",
        "`train_from` with `reset_optim all`"},
        "`run.tune`"},
    {{"`--log-interval`", "`--disp-freq`", "`report_every`"}, "`train.log_every`"},
    {{"`--tensorboard-logdir`", "", "`tensorboard`, `tensorboard_log_dir`"}, "`run.tensorboard = true`"},
    {{"", "`--sentencepiece-alphas`", "`src_subword_alpha`, `tgt_subword_alpha`"},
        "`data.subword_sampling`, `data.subword_dropout`"},
    {{"`--fp16`, `--bf16`", "`--fp16`", "`fp16`"},
        "`device.precision = auto`: bf16 on CPUs that compute faster in it"},
    {{"`--num-workers`", "`--cpu-threads`, `--workers`", "`num_workers`"}, "`device.threads`"},
    {{NULL}, NULL}};

static const nm_foreign_row search[] = {
    {{"`--beam` (5)", "`--beam-size` (12)", "`beam_size` (5)"}, "`--beam` (5)"},
    {{"`--lenpen A` (1)", "`--normalize A` (0; without a value 1)",
        "`length_penalty: avg` is A = 1, `none` A = 0"}, "`--alpha A` (1)"},
    {{"", "", "`length_penalty: wu`, `alpha A`"}, "`--length-penalty gnmt`, `--alpha A`"},
    {{"`--max-len-a` (0)", "`--max-length-factor` (3)", ""}, "`--max-length-a` (1)"},
    {{"`--max-len-b` (200)", "", "`max_length`"}, "`--max-length-b` (50)"},
    {{"`--min-len`", "", "`min_length`"}, "`--min-length`"},
    {{"`--nbest N`", "`--n-best`", "`n_best N`"},
        "`--nbest N`: lines `INDEX \\|\\|\\| TRANSLATION \\|\\|\\| SCORE`; "
        "Marian has a field of features before the score"},
    {{"`--remove-bpe`, `--post-process`, `--tokenizer moses`", "the default with SentencePiece", ""},
        "the default; `--output-format tokenized`, `subword` for text before these steps"},
    {{"input after BPE", "", ""}, "`--input-format subword`"},
    {{"`--unkpen` of a large value", "the default, unless `--allow-unk`", "`ban_unk_token`"},
        "`--unknown false`"},
    {{"`--prefix-size`", "`--force-decode`", "`tgt_file_prefix`"}, "`--prefix FILE`"},
    {{"`--constraints`", "", ""}, "`--constraints FILE`, phrases separated by tabs"},
    {{"`--print-alignment`", "`--alignment`", "`report_align`"}, "`--alignment`"},
    {{"`--sampling`", "`--output-sampling`", ""}, "`--search sample`"},
    {{"`--sampling-topk`", "", "`random_sampling_topk`"}, "`--top-k N` with `--search sample`"},
    {{"`--sampling-topp`", "", "`random_sampling_topp`"}, "`--top-p P` with `--search sample`"},
    {{"", "", "`random_sampling_temp`"}, "`--temperature` with `--search sample`"},
    {{"", "`--shortlist FILE 100 100`", ""},
        "`--shortlist FILE`, from `norma shortlist` ([translation.md](translation.md#lexical-shortlist))"},
    {{"`--diverse-beam-groups`", "", ""}, "`--diverse-groups`"},
    {{"`--diverse-beam-strength`", "", ""}, "`--diverse-strength`"},
    {{"`--no-repeat-ngram-size N`", "", "`block_ngram_repeat N`"},
        "`--no-repeat-ngram-size N`; `--repetition-penalty R` as in CTranslate2"},
    {{"`P-` lines", "`--word-scores`", ""}, "`--json`: `token_scores`"},
    {{"`--buffer-size`", "`--maxi-batch`", ""}, "`--buffer`; the output does not depend on it"},
    {{"`--max-tokens`", "`--mini-batch`, `--mini-batch-words`", "`batch_size`"},
        "`--batch-tokens`; the output does not depend on it"},
    {{NULL}, NULL}};

static const nm_foreign_row preparation[] = {
    {{"`--trainpref`", "`--train-sets`", "`path_src`"}, "`prepare.train`"},
    {{"`--validpref`", "`--valid-sets`", ""}, "`prepare.valid`"},
    {{"`--testpref`", "", ""}, "`prepare.test`"},
    {{"`--source-lang`", "", ""}, "`prepare.source_lang`"},
    {{"`--destdir`", "", "`save_data`"}, "`prepare.output`"},
    {{"`--joined-dictionary`", "", "`share_vocab`"}, "`prepare.joint`"},
    {{"`--srcdict`", "`--vocabs`", "`src_vocab`"}, "`prepare.dict_source`"},
    {{"`--tgtdict`", "", "`tgt_vocab`"}, "`prepare.dict_target`"},
    {{"`--thresholdsrc`, `--thresholdtgt`", "", "`src_words_min_frequency`, `tgt_words_min_frequency`"},
        "`prepare.min_count`"},
    {{"`--nwordssrc`, `--nwordstgt`", "`--dim-vocabs`", "`src_vocab_size`, `tgt_vocab_size`"},
        "`prepare.max_words`"},
    {{"`--padding-factor`", "", "`vocab_size_multiple`"}, "`prepare.dict_multiple`"},
    {{"`--workers`", "", "`num_threads`"}, "`prepare.threads`"},
    {{"`--align-suffix`", "`--guided-alignment`", "`path_align`"}, "`prepare.alignments`"},
    {{NULL}, NULL}};

/* transformers, nanoGPT and others. */
static const nm_foreign_row language_models[] = {
    {{"`hidden_size`, `d_model`, `n_embd`", "`n_embd`", "`embed_dim`"}, "`model.width`"},
    {{"`intermediate_size`, `n_inner`, `ffn_dim`", "4 `n_embd`", "`dim_feedforward`, `d_ff`"}, "`model.ff`"},
    {{"`num_hidden_layers`, `n_layer`, `num_layers`", "`n_layer`", "`depth`, `n_layers`"},
        "`model.layers`, `model.encoder_layers`"},
    {{"`num_attention_heads`, `n_head`", "`n_head`", "`nhead`, `num_heads`"}, "`model.heads`"},
    {{"`num_key_value_heads`", "", "`n_kv_heads`"}, "`model.key_value_heads`"},
    {{"`head_dim`", "", ""}, "`model.head_width`"},
    {{"`vocab_size`", "`vocab_size`", ""}, "`prepare.spm_vocab_size`, `prepare.bpe_vocabulary`"},
    {{"`train_file`, `validation_file`", "`dataset`", ""}, "`data.folder`, `data.train`"},
    {{"`layer_norm_eps`, `layer_norm_epsilon`", "", ""}, "`norm.layer.epsilon`"},
    {{"`rms_norm_eps`", "", "`norm_eps`"}, "`norm.rms.epsilon`"},
    {{"`max_position_embeddings`, `n_positions`, `n_ctx`", "`block_size`", "`seq_len`, `max_seq_len`"},
        "`model.context`, `data.max_length`"},
    {{"`hidden_act`, `activation_function`", "", ""}, "`model.activation`, `model.gated`"},
    {{"`rope_theta`", "", ""}, "`model.rope_base`"},
    {{"`sliding_window`", "", ""}, "`model.window`"},
    {{"`tie_word_embeddings`", "always", "`tie_weights`"}, "`model.share_embeddings`"},
    {{"`scale_embedding`", "", "`no_scale_embedding`"}, "`model.embedding_scale`"},
    {{"`attention_bias`, `mlp_bias`", "`bias`", ""}, "`model.bias`"},
    {{"`resid_pdrop`, `hidden_dropout_prob`", "`dropout`", ""}, "`model.dropout`"},
    {{"`embd_pdrop`", "`dropout`", ""}, "`model.embedding_dropout`"},
    {{"`attn_pdrop`, `attention_probs_dropout_prob`", "`dropout`", "`attn_dropout`"},
        "`model.attention_dropout`"},
    {{"`per_device_train_batch_size`", "`batch_size` times `block_size`", "`batch_size`"},
        "`train.max_tokens`, `data.batch`"},
    {{"`gradient_accumulation_steps`", "`gradient_accumulation_steps`", "`accumulate_grad_batches`"},
        "`train.shards`"},
    {{"`max_steps`", "`max_iters`", "`steps`, `num_steps`"}, "`train.updates`"},
    {{"`num_train_epochs`", "", "`num_epochs`, `max_epochs`"}, "`train.epochs`"},
    {{"`learning_rate`", "`learning_rate`", "`base_lr`"}, "`schedule.lr`"},
    {{"`lr_scheduler_type`", "`decay_lr`", "`scheduler`, `lr_schedule`"}, "`schedule.name`"},
    {{"`warmup_steps`", "`warmup_iters`", ""}, "`schedule.warmup`"},
    {{"`warmup_ratio`", "", ""}, "`schedule.warmup_fraction`"},
    {{"", "`lr_decay_iters`", "`total_num_update`"}, "`schedule.updates`"},
    {{"", "`min_lr` divided by `learning_rate`", ""}, "`schedule.final_fraction`"},
    {{"`optim`, `optimizer`", "AdamW", "`optimizer_type`"}, "`optim.name`"},
    {{"`weight_decay`", "`weight_decay`", "`wd`"}, "`optim.weight_decay`"},
    {{"`adam_beta1`, `adam_beta2`", "`beta1`, `beta2`", "`betas`"}, "`optim.beta1`, `optim.beta2`"},
    {{"`adam_epsilon`", "", "`epsilon`"}, "`optim.eps`"},
    {{"`max_grad_norm`", "`grad_clip`", "`gradient_clip_val`, `gradient_clip`, `gradient_clipping`"},
        "`train.max_grad_norm`"},
    {{"`label_smoothing_factor`", "", ""}, "`train.label_smoothing`"},
    {{"`gradient_checkpointing`", "", ""}, "`train.activation_checkpointing`"},
    {{"`logging_steps`", "`log_interval`", ""}, "`train.log_every`"},
    {{"`eval_steps`, `eval_strategy`, `evaluation_strategy`", "`eval_interval`", "`val_check_interval`"},
        "`train.validate_every`"},
    {{"`report_to tensorboard`", "`wandb_log`", "`wandb`"}, "`run.tensorboard = true`"},
    {{"`save_steps`", "", ""}, "`train.save_every`"},
    {{"`save_total_limit`", "", ""}, "`train.keep_last`"},
    {{"`metric_for_best_model`, `load_best_model_at_end`", "", ""}, "`train.best_by`"},
    {{"`early_stopping_patience`", "", ""}, "`train.patience`"},
    {{"`output_dir`, `logging_dir`", "`out_dir`", "`save_dir`, `output`"},
        "`run.folder`, `prepare.output`; `folder` of `norma compare`"},
    {{"`resume_from_checkpoint`", "`init_from resume`", ""}, "`run.resume`"},
    {{"`model_name_or_path`", "`init_from gpt2`", "`weights`, `checkpoint`, `ckpt_path`"}, "`run.tune`"},
    {{"`bf16`", "`dtype bfloat16`", "`amp`, `mixed_precision`"}, "`device.precision`"},
    {{"`dataloader_num_workers`", "", "`num_threads`"}, "`device.threads`"},
    {{"`num_beams`", "", ""}, "`decode.beam`"},
    {{"`max_new_tokens`", "`max_new_tokens`", "`max_tokens`"}, "`sample.tokens`, `decode.max_length_b`"},
    {{"`num_return_sequences`", "`num_samples`", ""}, "`generate.samples`, `decode.nbest`"},
    {{"", "`start`", ""}, "`generate.prompt`"},
    {{"`do_sample`", "", ""}, "`decode.search`"},
    {{NULL}, NULL}};

static const nm_foreign_row subwords_and_sockeye[] = {
    {{"`--input`", "", "`--source`, `--target`"}, "`prepare.train`"},
    {{"", "", "`--validation-source`, `--validation-target`"}, "`prepare.valid`"},
    {{"`--model_prefix`", "", "`--output`"}, "`prepare.output`, `run.folder`"},
    {{"`--vocab_size`", "", ""}, "`prepare.spm_vocab_size`"},
    {{"`--model_type`", "", ""}, "`prepare.spm_type`"},
    {{"`--normalization_rule_name`", "", ""}, "`prepare.spm_normalization`"},
    {{"`--user_defined_symbols`", "`--glossaries`", ""}, "`prepare.user_symbols`"},
    {{"", "`--symbols`", ""}, "`prepare.bpe_merges`"},
    {{"", "`--total-symbols`", ""}, "`prepare.bpe_vocabulary`"},
    {{"", "`--vocabulary`, `--vocabulary-threshold`", ""}, "`prepare.bpe_vocabulary_threshold`"},
    {{"", "", "`--num-words`"}, "`prepare.max_words`"},
    {{"", "", "`--word-min-count`"}, "`prepare.min_count`"},
    {{"", "", "`--shared-vocab`"}, "`prepare.joint`"},
    {{"", "", "`--source-vocab`"}, "`prepare.dict_source`"},
    {{"", "", "`--target-vocab`"}, "`prepare.dict_target`"},
    {{"", "", "`--prepared-data`"}, "`data.folder`"},
    {{"", "", "`--max-seq-len`"}, "`data.max_length`"},
    {{"", "", "`--transformer-model-size`, `--num-embed`"}, "`model.width`"},
    {{"", "", "`--transformer-feed-forward-num-hidden`"}, "`model.ff`"},
    {{"", "", "`--transformer-attention-heads`"}, "`model.heads`"},
    {{"", "", "`--transformer-activation-type`"}, "`model.activation`"},
    {{"", "", "`--weight-tying-type`"}, "`model.share_embeddings`"},
    {{"", "", "`--weight-init`"}, "`model.init`"},
    {{"", "", "`--embed-dropout`"}, "`model.embedding_dropout`"},
    {{"", "", "`--transformer-dropout-prepost`"}, "`model.dropout`"},
    {{"", "", "`--transformer-dropout-act`"}, "`model.relu_dropout`"},
    {{"", "", "`--initial-learning-rate`"}, "`schedule.lr`"},
    {{"", "", "`--learning-rate-warmup`"}, "`schedule.warmup`"},
    {{"", "", "`--learning-rate-scheduler-type`"}, "`schedule.name`"},
    {{"", "", "`--optimizer-betas`"}, "`optim.beta1`, `optim.beta2`"},
    {{"", "", "`--gradient-clipping-threshold`"}, "`train.max_grad_norm`"},
    {{"", "", "`--update-interval`"}, "`train.shards`"},
    {{"", "", "`--max-updates`"}, "`train.updates`"},
    {{"", "", "`--max-num-epochs`"}, "`train.epochs`"},
    {{"", "", "`--max-seconds`"}, "`train.seconds`"},
    {{"", "", "`--checkpoint-interval`"}, "`train.validate_every`"},
    {{"", "", "`--decode-and-evaluate`"}, "`train.score`"},
    {{"", "", "`--optimized-metric`"}, "`train.best_by`"},
    {{"", "", "`--max-num-checkpoint-not-improved`"}, "`train.patience`"},
    {{"", "", "`--keep-last-params`"}, "`train.keep_last`"},
    {{"", "", "`--params`"}, "`run.tune`"},
    {{"", "", "`--nbest-size`"}, "`decode.nbest`"},
    {{"", "", "`--length-penalty-alpha`"}, "`decode.alpha`"},
    {{"", "", "`--restrict-lexicon`"}, "`--shortlist`"},
    {{"", "", "`--sample`"}, "`decode.search`"},
    {{NULL}, NULL}};

static const nm_foreign_row unavailable[] = {
    {{"`--device-id`, `--distributed-world-size`", "`--devices`",
        "`gpu_ranks`, `world_size`, `gpus`, `num_gpus`, `cuda`, `accelerator`, `num_nodes`"},
        "Norma computes on CPUs: `device.threads` sets the number of threads, `mpirun` starts several "
        "processes"},
    {{"`--truncate-source`", "`--max-length-crop`", "`src_seq_length_trunc`"},
        "sentences are not truncated; `data.max_length` excludes longer ones"},
    {{"`--encoder-layerdrop`, `--decoder-layerdrop`", "", ""}, "there is no layer dropout"},
    {{"", "`--coverage-penalty`", "`coverage_penalty`, `stepwise_penalty`"}, "there is no coverage penalty"},
    {{"`--replace-unk`", "", "`replace_unk`"},
        "unknown tokens are not replaced by source words; with subwords and `--unknown false` there "
        "are none"},
    {{"`--encoder-learned-pos`, `--decoder-learned-pos`", "`--transformer-train-position-embeddings`",
        "`max_relative_positions`"}, "translation models have no learned and no relative positions"},
    {{"", "`--transformer-decoder-autoreg average-attention`", "`self_attn_type average`"},
        "there is no average attention and no SSRU"},
    {{"", "`--data-weighting`", "`copy_attn`"}, "data weights and copy attention do not exist"},
    {{"`--lambda-source`", "`--word-penalty`", ""}, "there is no word penalty"},
    {{NULL}, NULL}};

const nm_foreign_table nm_foreign_tables[] = {
    {"training", {"fairseq", "Marian", "OpenNMT-py"}, training, false},
    {"search", {"fairseq", "Marian", "OpenNMT-py"}, search, false},
    {"preparation", {"fairseq", "Marian", "OpenNMT-py"}, preparation, false},
    {"language models", {"transformers", "nanoGPT", "others"}, language_models, false},
    {"subwords and Sockeye", {"SentencePiece", "subword-nmt", "Sockeye"}, subwords_and_sockeye, false},
    {"unavailable", {"fairseq", "Marian", "OpenNMT-py and others"}, unavailable, true},
    {0}};
/* clang-format on */

static bool is_name_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

/* The position of a name, with _ in place of -, among those in backquotes in a cell; -1: it is not there. */
static int position_in(const char *cell, const char *name)
{
    const char *open = strchr(cell, '`'), *close;
    int position = 0;
    for (; open && (close = strchr(open + 1, '`')) != NULL; open = strchr(close + 1, '`')) {
        const char *at = open + 1 + strspn(open + 1, "-");
        size_t n = 0;
        while (is_name_character(at[n]) && name[n] == (at[n] == '-' ? '_' : at[n]))
            n++;
        if (n && !name[n] && !is_name_character(at[n]))
            return position;
        position += is_name_character(*at);
    }
    return -1;
}

const nm_foreign_row *nm_foreign_find(const char *name, bool unavailable_names, const nm_foreign_row *row)
{
    bool passed = !row;
    for (const nm_foreign_table *table = nm_foreign_tables; table->name; table++)
        for (const nm_foreign_row *at = table->rows; at->norma; at++) {
            if (passed && table->unavailable == unavailable_names)
                for (int i = 0; i < 3; i++)
                    if (position_in(at->toolkits[i], name) >= 0)
                        return at;
            passed |= at == row;
        }
    return NULL;
}

int nm_foreign_option_position(const nm_foreign_row *row, const char *path)
{
    const char *dot = strrchr(path, '.');
    int position = position_in(row->norma, path);
    return position < 0 && dot ? position_in(row->norma, dot + 1) : position;
}
