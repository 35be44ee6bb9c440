/* SentencePiece models: segmentation and decoding as SentencePiece 0.1.97 (spm_encode, spm_decode) with the
 * same models, which the test builds, normalization rules, and damaged files. */
#include "text/sentencepiece.h"

#include <math.h>
#include <stdlib.h>

#include "data/subword_sampler.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "text_helper.h"

static void put_number(nm_buffer *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        nm_buffer_append_byte(out, (char)(value | 0x80));
    nm_buffer_append_byte(out, (char)value);
}

static void put_field(nm_buffer *out, int field, uint64_t value)
{
    put_number(out, (uint64_t)field << 3);
    put_number(out, value);
}

static void put_bytes(nm_buffer *out, int field, const char *data, size_t bytes)
{
    put_number(out, (uint64_t)field << 3 | 2);
    put_number(out, bytes);
    nm_buffer_append(out, data, bytes);
}

static void put_piece(nm_buffer *out, const char *text, float score, nm_spm_piece_type type)
{
    nm_buffer piece = {0};
    put_bytes(&piece, 1, text, strlen(text));
    put_number(&piece, 2 << 3 | 5);
    nm_buffer_append(&piece, (const char *)&score, sizeof score);
    put_field(&piece, 3, type);
    put_bytes(out, 1, piece.data, piece.bytes);
    nm_buffer_release(&piece);
}

/* Rules as SentencePiece stores them: every node of the trie has a block of 256 units for its children. */
enum { MAX_NODES = 16 };
static void put_rules(nm_buffer *out, const char *const (*rules)[2], size_t n_rules)
{
    static uint32_t units[(MAX_NODES + 1) * 256];
    uint32_t at[MAX_NODES] = {0}, n_nodes = 1;
    nm_buffer replacements = {0};
    memset(units, 0, sizeof units);
    for (size_t i = 0; i < (MAX_NODES + 1) * 256; i++)
        units[i] = i % 256 ? 0x80000000u : 0; /* no label: matches no byte */
    units[0] = (256u ^ 0) << 10;
    for (size_t r = 0; r < n_rules; r++) {
        uint32_t node = 0;
        for (const char *key = rules[r][0]; *key; key++) {
            uint32_t child = ((node + 1) * 256) ^ (unsigned char)*key, next = 0;
            for (uint32_t i = 1; i < n_nodes; i++)
                if (at[i] == child)
                    next = i;
            if (!next) {
                assert_true(n_nodes < MAX_NODES);
                next = n_nodes++;
                at[next] = child;
                units[child] = (unsigned char)*key | (child ^ (next + 1) * 256) << 10;
            }
            node = next;
        }
        units[at[node]] |= 0x100;
        units[(node + 1) * 256] = 0x80000000u | (uint32_t)replacements.bytes;
        nm_buffer_append(&replacements, rules[r][1], strlen(rules[r][1]) + 1);
    }
    nm_buffer map = {0};
    uint32_t bytes = sizeof units;
    nm_buffer_append(&map, (const char *)&bytes, sizeof bytes);
    nm_buffer_append(&map, (const char *)units, sizeof units);
    nm_buffer_append(&map, replacements.data, replacements.bytes);
    put_bytes(out, 2, map.data, map.bytes);
    nm_buffer_release(&map);
    nm_buffer_release(&replacements);
}

typedef struct model_spec {
    nm_spm_type type;
    bool byte_fallback, suffix, no_prefix, keeps_spaces, rules;
} model_spec;

static const struct {
    const char *text;
    float score;
    nm_spm_piece_type type;
} pieces[] = {
    {"<unk>", 0, NM_SPM_UNKNOWN},      {"<s>", 0, NM_SPM_CONTROL},       {"</s>", 0, NM_SPM_CONTROL},
    {"<sep>", 0, NM_SPM_USER_DEFINED}, {"京都", 0, NM_SPM_USER_DEFINED}, {"▁", -2.5f, NM_SPM_NORMAL},
    {"th", -3.25f, NM_SPM_NORMAL},     {"▁th", -3.5f, NM_SPM_NORMAL},    {"▁the", -3.75f, NM_SPM_NORMAL},
    {"the", -4.125f, NM_SPM_UNUSED},   {"▁▁", -4.25f, NM_SPM_NORMAL},    {"he", -4.5f, NM_SPM_NORMAL},
    {"東京", -5, NM_SPM_NORMAL},       {"京", -5.25f, NM_SPM_NORMAL},    {"都", -5.5f, NM_SPM_NORMAL},
    {"東", -5.75f, NM_SPM_NORMAL},     {"ガ", -6, NM_SPM_NORMAL},        {"ガラ", -6.5f, NM_SPM_NORMAL},
    {"ラ", -6.75f, NM_SPM_NORMAL},     {"t", -7, NM_SPM_NORMAL},         {"h", -7.125f, NM_SPM_NORMAL},
    {"e", -7.25f, NM_SPM_NORMAL},      {"A", -7.5f, NM_SPM_NORMAL},
};

static const char *const rules[][2] = {{"\xEF\xBC\xA1", "A"},                        /* fullwidth A */
                                       {"\xEF\xBD\xB6", "\xE3\x82\xAB"},             /* halfwidth ka */
                                       {"\xEF\xBD\xB6\xEF\xBE\x9E", "\xE3\x82\xAC"}, /* with its mark: ga */
                                       {"\xE3\x80\x80", " "}};

static void build(const model_spec *spec, nm_buffer *out)
{
    nm_buffer trainer = {0}, normalizer = {0};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        put_piece(out, pieces[i].text, pieces[i].score, pieces[i].type);
    for (int byte = 0; spec->byte_fallback && byte < 256; byte++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
        put_piece(out, text, 0, NM_SPM_BYTE);
    }
    put_field(&trainer, 3, spec->type);
    put_field(&trainer, 24, spec->suffix);
    put_field(&trainer, 35, spec->byte_fallback);
    put_bytes(out, 2, trainer.data, trainer.bytes);
    if (spec->rules)
        put_rules(&normalizer, rules, sizeof rules / sizeof *rules);
    put_field(&normalizer, 3, !spec->no_prefix);
    put_field(&normalizer, 4, !spec->keeps_spaces);
    put_bytes(out, 3, normalizer.data, normalizer.bytes);
    nm_buffer_release(&trainer);
    nm_buffer_release(&normalizer);
}

static nm_spm *open_model(const model_spec *spec)
{
    nm_buffer file = {0};
    nm_error err;
    nm_spm *spm;
    build(spec, &file);
    if (nm_spm_parse(file.data, file.bytes, "model", &spm, &err) != NM_OK)
        fail_msg("%s", err.text);
    nm_buffer_release(&file);
    return spm;
}

static const char *const lines[] = {
    "",
    "   ",
    "the the",
    "  the  hethe ",
    "東京都",
    "京都の東京",
    "ＡカｶﾞｶラＡ　the",
    "thé<sep>the",
    "the<s>▁<0x41>",
};

static const model_spec unigram = {.type = NM_SPM_UNIGRAM, .rules = true},
                        unigram_bytes = {.type = NM_SPM_UNIGRAM, .byte_fallback = true, .rules = true},
                        unigram_suffix = {.type = NM_SPM_UNIGRAM, .suffix = true},
                        bpe = {.type = NM_SPM_BPE, .byte_fallback = true, .rules = true},
                        bpe_spaces = {.type = NM_SPM_BPE, .no_prefix = true, .keeps_spaces = true},
                        characters = {.type = NM_SPM_CHAR, .rules = true};

#include "sentencepiece_expected.h"

static void check_case(const model_spec *spec, const expected_line *expected)
{
    nm_spm *spm = open_model(spec);
    nm_spm_coder *coder = nm_spm_coder_create(spm);
    nm_buffer got = {0};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        nm_buffer_clear(&got);
        nm_spm_encode(coder, lines[i], strlen(lines[i]), true, &got);
        assert_string_equal(got.data, expected[i].pieces);
        nm_buffer_clear(&got);
        nm_spm_decode(spm, expected[i].pieces, strlen(expected[i].pieces), &got);
        assert_string_equal(got.data, expected[i].text);
    }
    nm_buffer_release(&got);
    nm_spm_coder_free(coder);
    nm_spm_free(spm);
}

static void test_segmentation(void **state)
{
    (void)state;
    check_case(&unigram, expected_unigram);
    check_case(&unigram_bytes, expected_unigram_bytes);
    check_case(&unigram_suffix, expected_unigram_suffix);
    check_case(&bpe, expected_bpe);
    check_case(&bpe_spaces, expected_bpe_spaces);
    check_case(&characters, expected_characters);
}

static void check_inside(const model_spec *spec, const char *line, const char *expected)
{
    nm_spm *spm = open_model(spec);
    nm_spm_coder *coder = nm_spm_coder_create(spm);
    nm_buffer got = {0};
    nm_buffer_clear(&got);
    nm_spm_encode_inside(coder, line, strlen(line), &got);
    assert_string_equal(got.data, expected);
    nm_buffer_release(&got);
    nm_spm_coder_free(coder);
    nm_spm_free(spm);
}

/* Within a text, without the space at the beginning or at the end; spaces in the middle remain. */
static void test_segmentation_inside(void **state)
{
    (void)state;
    check_inside(&unigram, "東京都", "東 京都");
    check_inside(&unigram_suffix, "東京都", "東 京都");
    check_inside(&bpe, "東京都", "東 京都");
    check_inside(&bpe_spaces, "東京都", "東 京都");
    check_inside(&characters, "東都", "東 都");
    check_inside(&unigram, "都 京", "都 ▁ 京");
    check_inside(&unigram, "喜", "<unk>");
    check_inside(&unigram, "  ", "");
}

/* As a tokenizer, unknown characters are one symbol, and a line stays one line. */
static void test_tokenizer(void **state)
{
    (void)state;
    nm_spm *plain = open_model(&unigram), *bytes = open_model(&unigram_bytes);
    nm_tokenizer_options options = nm_tokenizer_options_default();
    nm_tokenizer tokenizer;
    nm_error err;
    nm_buffer got = {0};
    options.spm = plain;
    assert_int_equal(nm_tokenizer_open(&tokenizer, "sentencepiece", &options, &err), NM_OK);
    nm_tokenize(&tokenizer, "京の€東", strlen("京の€東"), &got);
    assert_string_equal(got.data, "▁ 京 <unk> 東");
    nm_buffer_clear(&got);
    nm_detokenize(&tokenizer, "▁ 京 <unk> 東", strlen("▁ 京 <unk> 東"), &got);
    assert_string_equal(got.data, "京 \xE2\x81\x87 東");
    nm_tokenizer_close(&tokenizer);
    options.spm = bytes;
    assert_int_equal(nm_tokenizer_open(&tokenizer, "sentencepiece", &options, &err), NM_OK);
    nm_buffer_clear(&got);
    nm_detokenize(&tokenizer, "t <0x0A> <0xE6> <0x00> e", strlen("t <0x0A> <0xE6> <0x00> e"), &got);
    assert_string_equal(got.data, "t \xEF\xBF\xBD e");
    assert_int_equal(got.bytes, 7);
    nm_tokenizer_close(&tokenizer);
    options.spm = NULL;
    assert_int_equal(nm_tokenizer_open(&tokenizer, "sentencepiece", &options, &err), NM_USAGE);
    nm_buffer_release(&got);
    nm_spm_free(plain);
    nm_spm_free(bytes);
}

static void use_model(const char *data, size_t bytes)
{
    nm_error err;
    nm_spm *spm;
    if (nm_spm_parse(data, bytes, "model", &spm, &err) != NM_OK) {
        assert_null(spm);
        return;
    }
    nm_spm_coder *coder = nm_spm_coder_create(spm);
    nm_buffer got = {0};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        nm_buffer_clear(&got);
        nm_spm_encode(coder, lines[i], strlen(lines[i]), false, &got);
        assert_int_equal(nm_utf8_find_invalid(got.data, got.bytes), got.bytes);
    }
    nm_buffer_release(&got);
    nm_spm_coder_free(coder);
    nm_spm_free(spm);
}

static void test_damage(void **state)
{
    (void)state;
    nm_buffer file = {0};
    build(&unigram_bytes, &file);
    for (size_t bytes = 0; bytes < file.bytes; bytes += bytes < 700 ? 1 : 97)
        use_model(file.data, bytes);
    uint32_t random = 1;
    for (int i = 0; i < 3000; i++) {
        random = random * 1664525 + 1013904223;
        size_t at = (random >> 8) % file.bytes;
        char before = file.data[at];
        file.data[at] = (char)(random >> 3);
        use_model(file.data, file.bytes);
        file.data[at] = before;
    }
    nm_buffer_release(&file);
}

static void expect_refusal(const nm_buffer *file, nm_status status, const char *message)
{
    nm_error err;
    nm_spm *spm;
    assert_int_equal(nm_spm_parse(file->data, file->bytes, "m.model", &spm, &err), status);
    if (!strstr(err.text, message))
        fail_msg("'%s' is not in: %s", message, err.text);
}

static void test_refusals(void **state)
{
    (void)state;
    nm_buffer file = {0};
    nm_buffer_append(&file, "just text\n", 10);
    expect_refusal(&file, NM_FORMAT, "m.model: not a SentencePiece model");
    nm_buffer_clear(&file);
    build(&(const model_spec){.type = NM_SPM_WORD}, &file);
    expect_refusal(&file, NM_UNSUPPORTED, "type word");
    nm_buffer_clear(&file);
    build(&unigram, &file);
    put_piece(&file, "東京", 0, NM_SPM_NORMAL);
    expect_refusal(&file, NM_FORMAT, "occurs twice");
    nm_buffer_clear(&file);
    put_piece(&file, "a", 0, NM_SPM_NORMAL);
    expect_refusal(&file, NM_FORMAT, "no unknown piece");
    nm_buffer_release(&file);
}

/* Spaces separate pieces, so tabs and newlines in them have other characters; a piece with such a character
 * keeps it. */
static void test_pieces_with_whitespace(void **state)
{
    (void)state;
    static const char text[] = "the\tthe\n\n\nthe\xEE\x80\x89";
    const model_spec spec = {.type = NM_SPM_BPE, .byte_fallback = true, .keeps_spaces = true};
    nm_buffer file = {0}, got = {0}, back = {0};
    nm_error err;
    nm_spm *spm;
    put_piece(&file, "\t", 0, NM_SPM_USER_DEFINED);
    put_piece(&file, "\n", 0, NM_SPM_NORMAL);
    put_piece(&file, "\n\n", 1, NM_SPM_NORMAL);
    build(&spec, &file);
    if (nm_spm_parse(file.data, file.bytes, "model", &spm, &err) != NM_OK)
        fail_msg("%s", err.text);
    nm_spm_coder *coder = nm_spm_coder_create(spm);
    nm_spm_encode(coder, text, sizeof text - 1, true, &got);
    assert_string_equal(
        got.data, "▁the \xEE\x80\x89 th e \xEE\x80\x8A\xEE\x80\x8A \xEE\x80\x8A th e <0xEE> <0x80> <0x89>");
    nm_spm_decode(spm, got.data, got.bytes, &back);
    assert_string_equal(back.data, text);
    assert_true(nm_spm_keeps_newlines(spm));
    nm_spm_coder_free(coder);
    nm_spm_free(spm);
    /* A piece with the name of the tab: the tab is divided into bytes. */
    put_piece(&file, "\xEE\x80\x89", 0, NM_SPM_NORMAL);
    if (nm_spm_parse(file.data, file.bytes, "model", &spm, &err) != NM_OK)
        fail_msg("%s", err.text);
    coder = nm_spm_coder_create(spm);
    nm_buffer_clear(&got);
    nm_buffer_clear(&back);
    nm_spm_encode(coder, text, sizeof text - 1, true, &got);
    assert_string_equal(got.data, "▁the <0x09> th e \xEE\x80\x8A\xEE\x80\x8A \xEE\x80\x8A th e \xEE\x80\x89");
    nm_spm_decode(spm, got.data, got.bytes, &back);
    assert_string_equal(back.data, text);
    nm_spm_coder_free(coder);
    nm_spm_free(spm);
    nm_buffer_release(&back);
    nm_buffer_release(&got);
    nm_buffer_release(&file);
}

/* Rules that map newlines to spaces, and unknown newlines. */
static void test_which_models_keep_newlines(void **state)
{
    (void)state;
    static const struct {
        model_spec spec;
        bool keeps;
    } cases[] = {{{.type = NM_SPM_BPE, .byte_fallback = true, .keeps_spaces = true}, true},
                 {{.type = NM_SPM_UNIGRAM, .byte_fallback = true, .keeps_spaces = true}, true},
                 {{.type = NM_SPM_BPE, .keeps_spaces = true}, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nm_spm *spm = open_model(&cases[i].spec);
        assert_int_equal(nm_spm_keeps_newlines(spm), cases[i].keeps);
        nm_spm_free(spm);
    }
}

enum { MAX_SEGMENTATIONS = 512 };

typedef struct segmentations { /* of a text, enumerated: pieces and logarithm of the probability */
    nm_buffer pieces[MAX_SEGMENTATIONS];
    double score[MAX_SEGMENTATIONS];
    int n;
} segmentations;

/* Extends the segmentation of the text before it by every normal piece at its start, and by an unknown one
 * for a character that is no piece. */
static void enumerate(segmentations *all, const char *text, const char *before, double score,
                      bool after_unknown)
{
    if (!*text) {
        assert_true(all->n < MAX_SEGMENTATIONS);
        nm_buffer_append(&all->pieces[all->n], before, strlen(before) + 1);
        all->score[all->n++] = score;
        return;
    }
    bool single = false;
    size_t first = nm_utf8_length(*text);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        size_t bytes = strlen(pieces[i].text);
        if (pieces[i].type != NM_SPM_NORMAL || strncmp(text, pieces[i].text, bytes))
            continue;
        char *more = nm_format("%s%s%s", before, *before ? " " : "", pieces[i].text);
        enumerate(all, text + bytes, more, score + (double)pieces[i].score, false);
        free(more);
        single |= bytes == first;
    }
    if (!single) {
        char *more = after_unknown ? nm_duplicate(before)
                                   : nm_format("%s%s" NM_SPM_UNKNOWN_TOKEN, before, *before ? " " : "");
        enumerate(all, text + first, more, score + (double)(-7.5f - 10.0f), true);
        free(more);
    }
}

static int by_score(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Frequencies of the draws against P^alpha / sum of P^alpha, over all segmentations or the nbest best
 * ones. */
static void check_sampling(const char *text, double alpha, int64_t nbest)
{
    enum { DRAWS = 50000 };
    static segmentations all;
    all = (segmentations){0};
    double sum = 0, sorted[MAX_SEGMENTATIONS];
    int64_t found[MAX_SEGMENTATIONS] = {0};
    enumerate(&all, text, "", 0, false);
    memcpy(sorted, all.score, sizeof sorted);
    qsort(sorted, (size_t)all.n, sizeof *sorted, by_score);
    /* no equal ones at the limit */
    while (nbest && nbest < all.n && sorted[nbest - 1] - sorted[nbest] < 1e-9)
        nbest++;
    double worst = nbest && nbest < all.n ? sorted[nbest - 1] : -INFINITY;
    for (int i = 0; i < all.n; i++)
        sum += all.score[i] >= worst - 1e-9 ? exp(alpha * all.score[i]) : 0;
    nm_spm *spm = open_model(&(model_spec){.type = NM_SPM_UNIGRAM});
    nm_spm_coder *coder = nm_spm_coder_create(spm);
    nm_random_stream random = nm_random_stream_at(5, NM_RANDOM_TEST, 0, 0, 0);
    nm_buffer out = {0};
    for (int d = 0; d < DRAWS; d++) {
        nm_buffer_clear(&out);
        nm_spm_sample(coder, text, strlen(text), alpha, nbest, &random, &out);
        int i = 0;
        while (i < all.n &&
               (all.pieces[i].bytes != out.bytes + 1 || memcmp(all.pieces[i].data, out.data, out.bytes)))
            i++;
        if (i == all.n)
            fail_msg("%s: %.*s is not a segmentation", text, (int)out.bytes, out.data);
        found[i]++;
    }
    for (int i = 0; i < all.n; i++) { /* within 5 standard deviations of a binomial distribution */
        double p = all.score[i] >= worst - 1e-9 ? exp(alpha * all.score[i]) / sum : 0;
        if (fabs((double)found[i] / DRAWS - p) > 5 * sqrt(p * (1 - p) / DRAWS) + 1e-12)
            fail_msg("%s, alpha %g, nbest %d, %s: %.5f instead of %.5f", text, alpha, (int)nbest,
                     all.pieces[i].data, (double)found[i] / DRAWS, p);
        nm_buffer_release(&all.pieces[i]);
    }
    nm_buffer_release(&out);
    nm_spm_coder_free(coder);
    nm_spm_free(spm);
}

static void test_sampling_has_the_probabilities_of_the_lattice(void **state)
{
    (void)state;
    static const char *const texts[] = {"\xE2\x96\x81the", "\xE2\x96\x81theh\xE2\x96\x81the",
                                        ("\xE6\x9D\xB1\xE4\xBA\xAC"
                                         "A"),
                                        "tzhe"};
    static const double alphas[] = {0.1, 0.5, 1};
    for (size_t t = 0; t < sizeof texts / sizeof *texts; t++)
        for (size_t a = 0; a < 3; a++) {
            check_sampling(texts[t], alphas[a], 0);
            check_sampling(texts[t], alphas[a], 1);
            check_sampling(texts[t], alphas[a], 4);
            check_sampling(texts[t], alphas[a], 300);
        }
}

/* Without dropout the merges are those of the segmentation; with dropout 1 there are only characters. */
static void test_dropout_of_merges(void **state)
{
    (void)state;
    nm_spm *spm = open_model(&(model_spec){.type = NM_SPM_BPE});
    nm_spm_coder *coder = nm_spm_coder_create(spm);
    nm_random_stream random = nm_random_stream_at(5, NM_RANDOM_TEST, 0, 0, 0);
    nm_buffer out = {0}, merged = {0};
    static const char text[] = "\xE2\x96\x81the";
    nm_spm_encode(coder, "the", 3, false, &merged);
    nm_buffer_append_byte(&merged, 0);
    nm_spm_sample_merges(coder, text, strlen(text), 0, &random, &out);
    assert_buffer(&out, merged.data);
    nm_spm_sample_merges(coder, text, strlen(text), 1, &random, &out);
    assert_buffer(&out, "\xE2\x96\x81 t h e");
    int changed = 0;
    for (int i = 0; i < 1000; i++) {
        nm_spm_sample_merges(coder, text, strlen(text), 0.1, &random, &out);
        changed += out.bytes + 1 != merged.bytes || memcmp(out.data, merged.data, out.bytes);
        nm_buffer_clear(&out);
    }
    assert_true(changed > 50 && changed < 600);
    nm_spm_encode(coder, "the", 3, false, &out); /* the next line has all merges again */
    assert_buffer(&out, merged.data);
    nm_buffer_release(&out);
    nm_buffer_release(&merged);
    nm_spm_coder_free(coder);
    nm_spm_free(spm);
}

/* In a stored line the text before and after <unk> is segmented again, and <unk> stays. */
static void test_sampler_segments_between_unknown_tokens(void **state)
{
    (void)state;
    enum { LINES = 60 };
    static const char dictionary[] =
        "\xE2\x96\x81the 9\n\xE2\x96\x81th 5\n\xE2\x96\x81 5\nth 3\nhe 3\nt 1\nh 1\ne 1\n";
    static const char line[] = "\xE2\x96\x81the <unk> \xE2\x96\x81the";
    nm_vocab *vocab;
    nm_error err;
    nm_ids ids = {0};
    uint64_t offsets[LINES + 1];
    nm_spm *spm = open_model(&(model_spec){.type = NM_SPM_UNIGRAM});
    assert_int_equal(
        nm_vocab_parse(dictionary, strlen(dictionary), "dictionary", NM_VOCAB_FAIRSEQ, &vocab, &err), NM_OK);
    for (int i = 0; i <= LINES; i++) {
        offsets[i] = ids.n;
        nm_vocab_encode(vocab, line, strlen(line), &ids);
    }
    const int32_t whole = ids.data[0];
    const nm_corpus stored = {.ids = ids.data, .offsets = offsets, .n = LINES};
    const nm_subword_source source = {.corpus = &stored, .vocab = vocab, .spm = spm, .seed = 3, .threads = 1};
    nm_subword_sampler *sampler;
    assert_int_equal(nm_subword_sampler_create(&sampler, &(nm_subword_sampling){.alpha = 0.2}, &source, &err),
                     NM_OK);
    const nm_corpus *drawn = nm_subword_sampler_sample(sampler, 0);
    int before = 0, after = 0;
    for (int64_t i = 0; i < LINES; i++) {
        const int32_t *at = drawn->ids + drawn->offsets[i];
        int64_t n = nm_corpus_length(drawn, i), unknown = 0, others = 0;
        for (int64_t k = 0; k < n; k++) {
            others += at[k] == vocab->unk;
            unknown = at[k] == vocab->unk ? k : unknown;
        }
        assert_int_equal(others, 1);
        before += unknown != 1 || at[0] != whole;
        after += n - unknown != 2 || at[n - 1] != whole;
    }
    assert_true(before > LINES / 4 && before < LINES && after > LINES / 4 && after < LINES);
    nm_subword_sampler_free(sampler);
    nm_ids_release(&ids);
    nm_vocab_free(vocab);
    nm_spm_free(spm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_segmentation),
                                       cmocka_unit_test(test_segmentation_inside),
                                       cmocka_unit_test(test_tokenizer),
                                       cmocka_unit_test(test_damage),
                                       cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_pieces_with_whitespace),
                                       cmocka_unit_test(test_which_models_keep_newlines),
                                       cmocka_unit_test(test_sampling_has_the_probabilities_of_the_lattice),
                                       cmocka_unit_test(test_dropout_of_merges),
                                       cmocka_unit_test(test_sampler_segments_between_unknown_tokens)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
