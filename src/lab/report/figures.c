/* The figures in the order of the page, one row each. */
#include "report/figure.h"

#define SETTINGS    "Settings and score"
#define LEARNING    "Learning"
#define BATCH       "Batch statistics"
#define GRADIENTS   "Gradients and updates"
#define INSIDE      "Inside the network"
#define UPDATES     "updates"
#define TIME        "time in training"
#define PROBE(name) "recorded with --probe.every N (instrument " name ")"
#define GRID(n)                                                                                              \
    "needs runs of one norm that differ in " n ", as norma compare --grid --score-grid trains them"
#define LAYERS                                                                                               \
    "needs runs that differ in norm.at only, such as norma compare --norms "                                 \
    "layer,layer:norm.at=enc.0=batch,batch"
#define TID       "measured by norma compare, or by norma inspect RUN --save"
#define INSPECTED "measured by norma inspect RUN --save"
#define OVER_TIME "measured by norma inspect RUN --checkpoints --save, for two checkpoints or more"
#define GAP       "needs three or more runs whose norms use batch statistics, scored by norma compare"
#define SHEN      "Shen et al. 2020, "
#define TEARS     "Nguyen and Salazar 2019, "
#define WANG      "Wang et al. 2022, "

/* clang-format off */
const nm_figure nm_figures[] = {
    {.name = "setting-score", .section = SETTINGS, .title = "# against a setting", .source = SHEN "figure 5",
     .tag = "@score", .x_label = "", .y_label = "#",
     .collect = nm_collect_setting, .record = GRID("one setting")},
    {.name = "setting-heat-map", .section = SETTINGS, .title = "# by two settings", .source = WANG "figure 5",
     .tag = "@score", .x_label = "", .y_label = "", .style = NM_FIGURE_CELLS,
     .collect = nm_collect_heat_map, .record = GRID("two settings")},
    {.name = "setting-parallel", .section = SETTINGS, .title = "# by three or more settings",
     .tag = "@score", .x_label = "", .y_label = "", .style = NM_FIGURE_PARALLEL,
     .collect = nm_collect_parallel, .record = GRID("three or more settings")},
    {.name = "batch-layers-score", .section = SETTINGS, .title =
        "Loss in # by the number of layers with batch statistics",
     .source = WANG "figure 3", .tag = "@score", .x_label = "layers with batch statistics", .y_label =
         "loss in #",
     .collect = nm_collect_batch_layers, .record = LAYERS},
    {.name = "batch-layers-tid-mean", .section = SETTINGS,
     .title = "TID of the mean, last layer, by the number of layers with batch statistics", .source = WANG
         "figure 3",
     .tag = "mean", .percent = true, .x_label = "layers with batch statistics", .y_label =
         "TID of the mean, %", .falls = true,
     .collect = nm_collect_batch_layers, .record = LAYERS},
    {.name = "batch-layers-tid", .section = SETTINGS,
     .title = "TID of the variance, last layer, by the number of layers with batch statistics", .source = WANG
         "figure 3",
     .tag = "variance", .percent = true, .x_label = "layers with batch statistics", .y_label =
         "TID of the variance, %", .falls = true,
     .collect = nm_collect_batch_layers, .record = LAYERS},
    {.name = "valid-loss", .section = LEARNING, .title = "Validation loss", .source = WANG "figure 1",
     .tag = "valid/loss", .x_label = UPDATES, .y_label = "loss, nats", .falls = true,
     .collect = nm_collect_history, .record =
         "recorded at each validation (train.validate_every)"},
    {.name = "valid-loss-time", .section = LEARNING, .title = "Validation loss against time",
     .tag = "valid/loss", .x_label = TIME, .x_seconds = true, .y_label = "loss, nats", .falls = true,
     .collect = nm_collect_history, .record =
         "recorded at each validation (train.validate_every)"},
    {.name = "train-loss", .section = LEARNING, .title = "Training loss", .source = WANG "figure 1",
     .tag = "train/loss", .x_label = UPDATES, .y_label = "loss, nats", .falls = true,
     .collect = nm_collect_history, .record =
         "recorded every train.log_every updates"},
    {.name = "score", .section = LEARNING, .title = "Validation @", .source = WANG "figure 1",
        .tag = "@score",
     .x_label = UPDATES, .y_label = "@",
     .collect = nm_collect_history, .record =
         "recorded at each validation with train.score"},
    {.name = "score-time", .section = LEARNING, .title = "Validation @ against time", .tag = "@score",
     .x_label = TIME, .x_seconds = true, .y_label = "@",
     .collect = nm_collect_history, .record =
         "recorded at each validation with train.score"},
    {.name = "test-score", .section = LEARNING, .title = "Test #", .tag = "@score",
     .x_label = "", .y_label = "test #", .style = NM_FIGURE_BARS,
     .collect = nm_collect_test_scores, .record =
         "scored by norma compare, for two variants or more"},
    {.name = "perplexity", .section = LEARNING, .title = "Validation perplexity", .tag = "valid/perplexity",
     .x_label = UPDATES, .y_label = "perplexity", .y_log = true, .falls = true,
     .collect = nm_collect_unless_score, .record = "recorded at each validation"},
    {.name = "running-gap", .section = BATCH, .title =
        "Validation loss: running statistics against batch statistics",
     .source = WANG "section 3", .tag = "valid/nll", .minus = "valid/batch_nll", .x_label = UPDATES,
     .y_label = "difference, nats", .falls = true,
     .collect = nm_collect_history,
     .record = "recorded with train.batch_loss, for norms that use batch statistics"},
    {.name = "distance-mean", .section = BATCH,
        .title = "Distance between batch and running mean, first norm",
     .source = SHEN "figure 2", .tag = "probe/distance/*/mean", .x_label = UPDATES, .y_label =
         "|mu_B - mu| / d",
     .y_log = true, .falls = true, .sites = NM_SITES_FIRST,
     .collect = nm_collect_history, .record = PROBE("distance")},
    {.name = "distance-variance", .section = BATCH, .title =
        "Distance between batch and running variance, first norm",
     .source = SHEN "figure 2", .tag = "probe/distance/*/variance", .x_label = UPDATES,
     .y_label = "|sigma_B^2 - sigma^2| / d", .y_log = true, .falls = true, .sites = NM_SITES_FIRST,
     .collect = nm_collect_history, .record = PROBE("distance")},
    {.name = "distance-quadratic-mean", .section = BATCH,
     .title = "Distance between batch and running quadratic mean, first norm",
     .source = SHEN "figure 4", .tag = "probe/distance/*/quadratic_mean", .x_label = UPDATES,
     .y_label = "|psi_B^2 - psi^2| / d", .y_log = true, .falls = true, .sites = NM_SITES_FIRST,
     .collect = nm_collect_history, .record = PROBE("distance")},
    {.name = "deviation-mean", .section = BATCH, .title =
        "Deviation of the batch mean from the running mean, last layer",
     .source = WANG "figure 2", .tag = "probe/deviation/*/mean", .x_label = UPDATES, .percent = true,
         .y_label =
         "|mu_B - mu| / |sigma|, %",
     .falls = true, .sites = NM_SITES_LAST_LAYER,
     .collect = nm_collect_history, .record = PROBE("deviation")},
    {.name = "deviation-variance", .section = BATCH, .title =
        "Deviation of the batch variance from the running variance, last layer",
     .source = WANG "figure 2", .tag = "probe/deviation/*/variance", .x_label = UPDATES, .percent = true,
     .y_label = "|sigma_B - sigma| / |sigma|, %", .falls = true, .sites = NM_SITES_LAST_LAYER,
     .collect = nm_collect_history, .record = PROBE("deviation")},
    {.name = "gradient-mu", .section = BATCH, .title = "Gradient term of the batch mean, first norm",
     .source = SHEN "figure 3", .tag = "probe/gradient_parts/*/mu", .x_label = UPDATES, .y_label =
         "|g_mu| / d",
     .y_log = true, .sites = NM_SITES_FIRST,
     .collect = nm_collect_history, .record = PROBE("gradient_parts")},
    {.name = "gradient-sigma2", .section = BATCH, .title = "Gradient term of the batch variance, first norm",
     .source = SHEN "figure 3", .tag = "probe/gradient_parts/*/sigma2", .x_label = UPDATES,
     .y_label = "|g_sigma^2| / d", .y_log = true, .sites = NM_SITES_FIRST,
     .collect = nm_collect_history, .record = PROBE("gradient_parts")},
    {.name = "gradient-psi2", .section = BATCH,
     .title = "Gradient term of the batch quadratic mean, first norm",
     .source = SHEN "figure 4", .tag = "probe/gradient_parts/*/psi2", .x_label = UPDATES,
     .y_label = "|g_psi^2| / d", .y_log = true, .sites = NM_SITES_FIRST,
     .collect = nm_collect_history, .record = PROBE("gradient_parts")},
    {.name = "tid-mean", .section = BATCH, .title = "TID of the mean by norm",
        .source = WANG "tables 1 and 4",
     .tag = "test/tid/*/mean|inspect/tid.sites/*/mean", .x_label = "", .percent = true, .y_label =
         "TID of the mean, %", .y_log = true,
     .style = NM_FIGURE_MARKS, .falls = true,
     .collect = nm_collect_sites, .record = TID},
    {.name = "tid-variance", .section = BATCH, .title = "TID of the variance by norm",
     .source = WANG "tables 1 and 4", .tag = "test/tid/*/variance|inspect/tid.sites/*/variance",
         .x_label = "",
     .percent = true, .y_label = "TID of the variance, %", .y_log = true, .style = NM_FIGURE_MARKS,
         .falls = true,
     .collect = nm_collect_sites, .record = TID},
    {.name = "tid-last-mean-updates", .section = BATCH, .title = "TID of the mean over training, last layer",
        .source = WANG
        "figures 2 and 4", .tag = "inspect/tid.last/*/mean",
     .x_label = UPDATES, .percent = true, .y_label = "TID of the mean, %", .falls = true,
     .collect = nm_collect_checkpoints, .record = OVER_TIME},
    {.name = "tid-last-updates", .section = BATCH, .title = "TID of the variance over training, last layer",
        .source = WANG
        "figures 2 and 4", .tag = "inspect/tid.last/*/variance",
     .x_label = UPDATES, .percent = true, .y_label = "TID of the variance, %", .falls = true,
     .collect = nm_collect_checkpoints, .record = OVER_TIME},
    {.name = "tid-mean-updates", .section = BATCH, .title =
        "TID of the mean over training, average over the norms", .source = WANG "figures 2 and 4", .tag =
        "inspect/tid.average/*/mean",
     .x_label = UPDATES, .percent = true, .y_label = "TID of the mean, %", .falls = true,
     .collect = nm_collect_checkpoints, .record = OVER_TIME},
    {.name = "tid-updates", .section = BATCH, .title =
        "TID of the variance over training, average over the norms", .source = WANG "figures 2 and 4", .tag =
        "inspect/tid.average/*/variance",
     .x_label = UPDATES, .percent = true, .y_label = "TID of the variance, %", .falls = true,
     .collect = nm_collect_checkpoints, .record = OVER_TIME},
    {.name = "tid-mean-score", .section = BATCH, .title = "TID of the mean and loss in test #",
     .source = WANG "figure 3", .tag = "mean",
     .percent = true, .x_label = "TID of the mean, last layer, %", .y_label = "loss in #",
         .style = NM_FIGURE_SCATTER,
     .collect = nm_collect_score_gap, .record = GAP},
    {.name = "tid-score", .section = BATCH, .title = "TID of the variance and loss in test #",
     .source = WANG "figure 3", .tag = "variance",
     .percent = true, .x_label = "TID of the variance, last layer, %", .y_label = "loss in #",
     .style = NM_FIGURE_SCATTER,
     .collect = nm_collect_score_gap, .record = GAP},
    {.name = "backward-state", .section = BATCH, .title = "Largest running gradient statistic",
     .tag = "train/backward_state", .x_label = UPDATES, .y_label = "root mean square", .y_log = true,
     .collect = nm_collect_history, .record = "recorded for power, mabn and un"},
    {.name = "penalty", .section = BATCH, .title = "Penalties: RBN, guided alignment", .source = WANG
        "equation 6",
     .tag = "train/penalty", .x_label = UPDATES, .y_label = "penalty per token", .y_log = true, .falls = true,
     .collect = nm_collect_history, .record =
         "recorded for norms with a penalty (rbn) and guided alignment"},
    {.name = "gradient-norm", .section = GRADIENTS, .title = "Gradient norm", .source = TEARS "figure 2",
     .tag = "train/grad_norm", .x_label = UPDATES, .y_label = "norm before clipping", .y_log = true,
     .collect = nm_collect_history, .record =
         "recorded every train.log_every updates"},
    {.name = "gradient-groups", .section = GRADIENTS, .title = "Gradient norm by group of parameters",
     .tag = "probe/gradient/*/norm", .x_label = "", .y_label = "gradient norm, median of the run",
         .y_log = true, .median = true,
     .style = NM_FIGURE_MARKS, .collect = nm_collect_sites, .record = PROBE(
         "gradient")},
    {.name = "update-ratio", .section = GRADIENTS, .title = "Relative size of the update",
     .tag = "probe/update_ratio/ratio", .x_label = UPDATES, .y_label = "|update| / |parameters|",
         .y_log = true,
     .collect = nm_collect_history, .record = PROBE("update_ratio")},
    {.name = "update-ratio-groups", .section = GRADIENTS, .title =
        "Relative size of the update by group of parameters",
     .tag = "probe/update_ratio/*/ratio", .x_label = "", .y_label = "ratio, median of the run", .y_log = true,
         .median = true,
     .style = NM_FIGURE_MARKS, .collect = nm_collect_sites, .record = PROBE(
         "update_ratio")},
    {.name = "gain", .section = INSIDE, .title = "gamma / psi_B by norm, from the first to the ninth decile",
     .source = SHEN "figure 7", .tag = "probe/gain/*/quantiles", .x_label = "", .y_label = "gamma / psi_B",
     .y_log = true, .line = 1, .style = NM_FIGURE_BARS,
     .collect = nm_collect_quantiles, .record = PROBE("gain")},
    {.name = "learned-g", .section = INSIDE, .title =
        "Learned scale by sublayer and depth (L2 norm of a vector)",
     .source = TEARS "figures 3 and 4", .tag = "probe/scale/*/g", .x_label = "", .y_label = "g",
     .style = NM_FIGURE_DEPTH, .collect = nm_collect_depth, .record = PROBE(
         "scale")},
    {.name = "deviation-input", .section = INSIDE, .title = "Standard deviation of the input of each norm",
     .tag = "probe/moments/*/input.deviation", .x_label = "", .y_label = "standard deviation", .y_log = true,
     .style = NM_FIGURE_MARKS, .collect = nm_collect_sites, .record = PROBE(
         "moments")},
    {.name = "deviation-output", .section = INSIDE, .title = "Standard deviation of the output of each norm",
     .tag = "probe/moments/*/output.deviation", .x_label = "", .y_label = "standard deviation", .y_log = true,
     .style = NM_FIGURE_MARKS, .collect = nm_collect_sites, .record = PROBE(
         "moments")},
    {.name = "singular-values", .section = INSIDE, .title = "Singular values of the embedding matrix",
     .source = SHEN "figure 6", .tag = "inspect/spectrum.values", .x_label = "rank", .y_label =
         "relative to the largest",
     .collect = nm_collect_spectrum, .record = INSPECTED},
    {.name = "condition-50", .section = INSIDE, .title = "Condition number of the inputs of layers, C_50",
     .source = WANG "figures 6 and 7", .tag = "inspect/condition/*/c50", .x_label = "", .y_label = "C_50",
         .y_log = true,
     .falls = true, .style = NM_FIGURE_MARKS, .collect = nm_collect_sites, .record = INSPECTED},
    {.name = "condition-50-updates", .section = INSIDE, .title =
        "C_50 of the last layer of the first stack over training",
     .source = WANG "figures 6 and 7", .tag = "inspect/condition/*/c50", .x_label = UPDATES,
         .y_label = "C_50",
     .y_log = true, .falls = true, .sites = NM_SITES_LAST_LAYER,
     .collect = nm_collect_checkpoints, .record = OVER_TIME},
    {.name = "condition-80", .section = INSIDE, .title = "Condition number of the inputs of layers, C_80",
     .source = WANG "figures 6 and 7", .tag = "inspect/condition/*/c80", .x_label = "", .y_label = "C_80",
         .y_log = true,
     .falls = true, .style = NM_FIGURE_MARKS, .collect = nm_collect_sites, .record = INSPECTED},
    {.name = "condition-80-updates", .section = INSIDE, .title =
        "C_80 of the last layer of the first stack over training",
     .source = WANG "figures 6 and 7", .tag = "inspect/condition/*/c80", .x_label = UPDATES,
         .y_label = "C_80",
     .y_log = true, .falls = true, .sites = NM_SITES_LAST_LAYER,
     .collect = nm_collect_checkpoints, .record = OVER_TIME},
    {.name = "condition-max", .section = INSIDE, .title = "Condition number of the inputs of layers, C_max",
     .source = WANG "figures 6 and 7", .tag = "inspect/condition/*/cmax", .x_label = "", .y_label = "C_max",
     .y_log = true, .falls = true, .style = NM_FIGURE_MARKS,
     .collect = nm_collect_sites, .record = INSPECTED},
    {.name = "condition-max-updates", .section = INSIDE, .title =
        "C_max of the last layer of the first stack over training",
     .source = WANG "figures 6 and 7", .tag = "inspect/condition/*/cmax", .x_label = UPDATES, .y_label =
         "C_max",
     .y_log = true, .falls = true, .sites = NM_SITES_LAST_LAYER,
     .collect = nm_collect_checkpoints, .record = OVER_TIME},
    {.name = "lemma-2", .section = INSIDE, .title = "Lemma 2: fraction of the bound",
        .source = SHEN "lemma 2",
     .tag = "inspect/lemma2/*/ratio", .x_label = "", .y_label = "fraction of the bound", .line = 1,
     .style = NM_FIGURE_MARKS, .collect = nm_collect_sites, .record = INSPECTED},
    {.name = "theorem-4", .section = INSIDE, .title = "Theorem 4: fraction of the bound", .source = SHEN
        "theorem 4",
     .tag = "inspect/theorem4/*/ratio", .x_label = "", .y_label = "fraction of the bound", .line = 1,
     .style = NM_FIGURE_MARKS, .collect = nm_collect_sites, .record = INSPECTED},
    {.name = NULL}};
/* clang-format on */
