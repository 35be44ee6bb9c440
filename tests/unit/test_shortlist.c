/* Lexical shortlists: reading, selection, and searches that output the selected tokens only. */
#include "decode_search.h"

#include "task/shortlist_file.h"

#include <unistd.h>

static char folder[] = "/tmp/norma-shortlist-XXXXXX";

static int enter(void **state)
{
    (void)state;
    return mkdtemp(folder) && !chdir(folder) ? 0 : -1;
}

static int leave(void **state)
{
    (void)state;
    unlink("list");
    return chdir("/") || rmdir(folder);
}

static void write_list(const char *text)
{
    FILE *file = fopen("list", "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && !fclose(file));
}

/* Tokens of letters: a is 4, b is 5, ... */
static nm_vocab *letters(int n)
{
    char text[200] = "";
    nm_vocab *vocab;
    nm_error err;
    for (int i = 0; i < n; i++)
        sprintf(text + strlen(text), "%c 1\n", 'a' + i);
    if (nm_vocab_parse(text, strlen(text), "letters", NM_VOCAB_FAIRSEQ, &vocab, &err) != NM_OK)
        fail_msg("%s", err.text);
    return vocab;
}

static nm_status read_list(nm_shortlist *list, const char *text, nm_shortlist_config config,
                           const uint8_t *allowed, nm_error *err)
{
    nm_vocab *source = letters(3), *target = letters(6);
    write_list(text);
    nm_status status = nm_shortlist_read(list, "list", &config, source, target, allowed, err);
    nm_vocab_free(source);
    nm_vocab_free(target);
    return status;
}

static void check_selected(const nm_shortlist *list, const int32_t *ids, int32_t n, const nm_ids *required,
                           const char *want)
{
    uint8_t mark[10] = {0};
    nm_ids selected = {0};
    char text[100] = "";
    nm_shortlist_select(list, ids, n, required, mark, &selected);
    for (size_t i = 0; i < selected.n; i++)
        sprintf(text + strlen(text), "%d ", selected.data[i]);
    assert_string_equal(text, want);
    for (size_t i = 0; i < sizeof mark; i++)
        assert_int_equal(mark[i], 0);
    nm_ids_release(&selected);
}

static void test_selection(void **state)
{
    (void)state;
    nm_shortlist list;
    nm_error err;
    nm_ids none = {0}, required = {0};
    const int32_t a_eos[] = {4, EOS}, b[] = {5}, both[] = {5, 4, 4, EOS};
    const char *text = "c a 0.2\nd a 0.5\te\nc a 0.2\n";
    assert_int_equal(read_list(&list, text, (nm_shortlist_config){.best = 2, .frequent = 0}, NULL, &err),
                     NM_FORMAT);
    assert_non_null(strstr(err.text, "list:2: not a line TARGET SOURCE PROBABILITY"));
    nm_shortlist_release(&list);
    /* the two best of a: d and c; NULL, an unknown token and an empty line are ignored */
    text = "c a 0.2\nd\ta  0.5\ne a 0.1\n\nf b 1\nNULL a 0.9\nb NULL 0.9\nx a 0.9\n";
    assert_int_equal(read_list(&list, text, (nm_shortlist_config){.best = 2, .frequent = 0}, NULL, &err),
                     NM_OK);
    check_selected(&list, a_eos, 2, &none, "2 3 6 7 ");
    check_selected(&list, b, 1, &none, "2 3 9 ");
    check_selected(&list, both, 4, &none, "2 3 6 7 9 ");
    nm_ids_append(&required, 8);
    nm_ids_append(&required, 6);
    check_selected(&list, a_eos, 2, &required, "2 3 6 7 8 ");
    nm_shortlist_release(&list);
    /* frequent tokens: the first two; d and b may not be output */
    const uint8_t allowed[10] = {0, 0, 1, 0, 1, 0, 1, 0, 1, 1};
    assert_int_equal(read_list(&list, text, (nm_shortlist_config){.best = 2, .frequent = 2}, allowed, &err),
                     NM_OK);
    check_selected(&list, a_eos, 2, &none, "2 4 6 8 ");
    nm_ids_append(&required, 9);
    nm_ids_append(&required, 7);
    check_selected(&list, a_eos, 2, &required, "2 4 6 8 9 ");
    nm_shortlist_release(&list);
    nm_ids_release(&required);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        nm_status status;
        const char *message;
    } cases[] = {
        {"", NM_MISMATCH, "0 of 0 lines"},
        {"x a 1\ny b 1\nc a 1\n", NM_MISMATCH,
         "list: the dictionaries of the model have the tokens of 1 of 3"},
        {"c a\n", NM_FORMAT, "list:1: "},
        {"c a 1\nc a 1.5\n", NM_FORMAT, "list:2: "},
        {"c a nan\n", NM_FORMAT, "list:1: "},
        {"c a 0.5x\n", NM_FORMAT, "list:1: "},
        {"c a 1\n\xff a 1\n", NM_FORMAT, "list:2: not UTF-8"},
        {"NULL languages:en:de 0\nc a 1\n", NM_MISMATCH,
         "list: the shortlist is for the languages en:de, the model for de:en"},
        {"NULL languages:de:e 0\nc a 1\n", NM_MISMATCH, "the languages de:e, the model"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nm_shortlist list;
        nm_error err = {0};
        assert_int_equal(read_list(&list, cases[i].text, (nm_shortlist_config){9, 9, "de:en"}, NULL, &err),
                         cases[i].status);
        if (!strstr(err.text, cases[i].message))
            fail_msg("%s", err.text);
        nm_shortlist_release(&list);
    }
}

/* The line is for the first line only, and other lines of the empty word are ignored. */
static void test_languages(void **state)
{
    (void)state;
    static const char *const texts[] = {"NULL languages:de:en 0\nc a 1\n", "NULL a 0.5\nc a 1\n",
                                        "c a 1\nNULL languages:en:de 0\n", "NULL languages:en:de 0\nc a 1\n"};
    for (int i = 0; i < 4; i++) {
        nm_shortlist list;
        nm_error err;
        const nm_shortlist_config config = {9, 9, i < 3 ? "de:en" : NULL};
        if (read_list(&list, texts[i], config, NULL, &err) != NM_OK)
            fail_msg("%s", err.text);
        nm_shortlist_release(&list);
    }
}

/* For source tokens 3 .. WORDS - 1: each selects itself and the next one; eos is always selected. */
static nm_shortlist *neighbors(void)
{
    nm_shortlist *list = nm_allocate(sizeof *list);
    *list = (nm_shortlist){.source_size = WORDS,
                           .target_size = WORDS,
                           .offsets = nm_allocate((WORDS + 1) * sizeof(size_t)),
                           .targets = nm_allocate((size_t)(2 * WORDS) * sizeof(int32_t))};
    size_t n = 0;
    for (int32_t s = 0; s < WORDS; s++) {
        if (s > UNK) {
            list->targets[n++] = s;
            list->targets[n++] = s + 1 < WORDS ? s + 1 : UNK + 1;
        }
        list->offsets[s + 1] = n;
    }
    nm_ids_append(&list->always, EOS);
    return list;
}

/* All tokens but pad and bos. */
static nm_shortlist *everything(void)
{
    nm_shortlist *list = neighbors();
    for (int32_t id = UNK; id < WORDS; id++)
        nm_ids_append(&list->always, id);
    return list;
}

static void list_free(nm_shortlist *list)
{
    nm_shortlist_release(list);
    free(list);
}

static bool is_selected(const nm_shortlist *list, const nm_id_list *source, int32_t id)
{
    uint8_t mark[WORDS] = {0};
    nm_ids selected = {0}, none = {0};
    bool found = false;
    nm_shortlist_select(list, source->ids, source->n, &none, mark, &selected);
    for (size_t i = 0; i < selected.n; i++)
        found |= selected.data[i] == id;
    nm_ids_release(&selected);
    return found;
}

static nm_decoder *decoder_with(nm_model *const *models, int32_t n_models, const nm_decode_options *options,
                                const nm_shortlist *list)
{
    nm_decoder *decoder;
    nm_error err;
    if (nm_decoder_create(&decoder, models, n_models, options, &special, &err) != NM_OK)
        fail_msg("%s", err.text);
    nm_decoder_set_shortlist(decoder, list);
    return decoder;
}

static void decode_with(nm_model *const *models, int32_t n_models, const nm_decode_options *options,
                        const nm_shortlist *list, const nm_id_list *sources, size_t n, nm_translation *out)
{
    nm_error err;
    nm_decoder *decoder = decoder_with(models, n_models, options, list);
    if (nm_decode(decoder, sources, n, out, &err) != NM_OK)
        fail_msg("%s", err.text);
    nm_decoder_free(decoder);
}

/* Every token is selected, and its log probability is that of the model divided by the sum over the selected
 * tokens. */
static void check_scores(tiny *const *made, int32_t n_models, const nm_shortlist *list, double tolerance)
{
    nm_model *models[2];
    for (int32_t m = 0; m < n_models; m++)
        models[m] = made[m]->model;
    corpus *text = random_corpus();
    nm_translation out[SOURCES];
    decode_with(models, n_models, decode_of(made[0]), list, text->list, SOURCES, out);
    for (size_t s = 0; s < SOURCES; s++)
        for (int32_t i = 0; i < out[s].n; i++) {
            const nm_hypothesis *h = &out[s].list[i];
            int32_t prefix[64] = {EOS};
            for (int32_t t = 0; t < h->n; t++) {
                double want = 0;
                for (int32_t m = 0; m < n_models; m++) {
                    double next[WORDS], sum = 0;
                    next_words(made[m], &text->list[s], prefix, t + 1, next);
                    for (int32_t v = 0; v < WORDS; v++)
                        sum += is_selected(list, &text->list[s], v) ? exp(next[v]) : 0;
                    want += exp(next[h->ids[t]]) / sum / n_models;
                }
                assert_true(is_selected(list, &text->list[s], h->ids[t]));
                if (!(fabs(h->token_scores[t] - log(want)) < tolerance))
                    fail_msg("log probability %g instead of %g", h->token_scores[t], log(want));
                prefix[t + 1] = h->ids[t];
            }
        }
    release_all(out, SOURCES);
    free(text);
}

static void check_backend(nm_backend *backend, const char *search, double tolerance)
{
    const char *const settings[] = {"decode.beam",
                                    "4",
                                    "decode.nbest",
                                    "3",
                                    "decode.search",
                                    search,
                                    "model.norm",
                                    "power",
                                    "model.output_bias",
                                    "true",
                                    "decode.max_length_b",
                                    "4",
                                    "decode.batch_tokens",
                                    "20",
                                    NULL};
    tiny a = tiny_create(backend, WORDS, 5, settings), b = tiny_create(backend, WORDS, 6, settings);
    tiny *const both[] = {&a, &b};
    nm_shortlist *list = neighbors();
    check_scores(both, 1, list, tolerance);
    check_scores(both, 2, list, tolerance);
    list_free(list);
    tiny_release(&a);
    tiny_release(&b);
    nm_backend_free(backend);
}

static void test_scores(void **state)
{
    (void)state;
    check_backend(backend_of("ref", NM_F64, 1, false), "fairseq", 1e-9);
    check_backend(backend_of("ref", NM_F64, 1, true), "tears", 1e-9);
    check_backend(backend_of("cpu", NM_F32, 2, false), "fairseq", 2e-5);
    check_backend(backend_of("cpu", NM_F32, 1, false), "tears", 2e-5);
}

/* With all tokens selected the translations are those without a shortlist, also with sampling. */
static void test_all_tokens(void **state)
{
    (void)state;
    static const char *const searches[] = {"fairseq", "tears", "sample"};
    for (int i = 0; i < 3; i++) {
        const char *const settings[] = {"decode.search", searches[i], "decode.nbest", "3", NULL};
        nm_backend *backend = backend_of("ref", NM_F64, 1, false);
        tiny made = tiny_create(backend, WORDS, 5, settings);
        const uint8_t allowed[WORDS] = {0, 0, 1, 1, 1, 1, 1, 1, 1};
        nm_error err;
        assert_int_equal(nm_model_allow(made.model, allowed, &err), NM_OK);
        corpus *text = random_corpus();
        nm_shortlist *list = everything();
        nm_translation want[SOURCES], got[SOURCES];
        decode_with(&made.model, 1, decode_of(&made), NULL, text->list, SOURCES, want);
        decode_with(&made.model, 1, decode_of(&made), list, text->list, SOURCES, got);
        for (size_t s = 0; s < SOURCES; s++) {
            assert_int_equal(got[s].n, 3);
            for (int32_t k = 0; k < 3; k++) {
                const nm_hypothesis *x = &got[s].list[k], *y = &want[s].list[k];
                assert_int_equal(x->n, y->n);
                assert_memory_equal(x->ids, y->ids, (size_t)x->n * sizeof *x->ids);
                assert_true(fabs(x->score - y->score) < 1e-9);
            }
        }
        release_all(want, SOURCES);
        release_all(got, SOURCES);
        list_free(list);
        free(text);
        tiny_release(&made);
        nm_backend_free(backend);
    }
}

/* Bitwise identical alone, in batches and with several threads, and in forced decoding. */
static void test_independence(void **state)
{
    (void)state;
    const char *const settings[] = {"decode.beam", "4", "decode.nbest", "4", "decode.batch_tokens",
                                    "40",          NULL};
    for (int threads = 1; threads <= 3; threads++) {
        nm_backend *backend = backend_of("cpu", NM_F32, threads, false);
        tiny made = tiny_create(backend, WORDS, 5, settings);
        corpus *text = random_corpus();
        nm_shortlist *list = neighbors();
        nm_translation all[SOURCES], one, scored;
        nm_error err;
        decode_with(&made.model, 1, decode_of(&made), list, text->list, SOURCES, all);
        nm_decoder *decoder = decoder_with(&made.model, 1, decode_of(&made), list);
        for (size_t s = 0; s < SOURCES; s++) {
            assert_int_equal(nm_decode(decoder, &text->list[s], 1, &one, &err), NM_OK);
            assert_same(&all[s], &one);
            for (int32_t i = 0; i < one.n; i++) {
                const nm_id_list target = {one.list[i].ids, one.list[i].n};
                assert_int_equal(nm_decode_score(decoder, &text->list[s], &target, 1, NULL, &scored, &err),
                                 NM_OK);
                assert_same(&scored, &(nm_translation){&one.list[i], 1});
                nm_translation_release(&scored);
            }
            nm_translation_release(&one);
        }
        nm_decoder_free(decoder);
        release_all(all, SOURCES);
        list_free(list);
        free(text);
        tiny_release(&made);
        nm_backend_free(backend);
    }
}

/* A prefix and constraints may contain other tokens; in forced decoding these have the log probability
 * -infinity. */
static void test_required(void **state)
{
    (void)state;
    nm_backend *backend = backend_of("ref", NM_F64, 1, false);
    tiny made = tiny_create(backend, WORDS, 5, NULL);
    nm_shortlist *list = neighbors();
    const int32_t source_ids[] = {4, EOS}, seven[] = {7}, eight[] = {8}, target_ids[] = {4, 7, EOS};
    const nm_id_list source = {source_ids, 2}, prefix = {seven, 1}, target = {target_ids, 3};
    const nm_phrase phrase = {.ids = eight, .n = 1};
    const nm_constraints constraints = {.phrases = &phrase, .n = 1};
    nm_translation out;
    nm_error err;
    nm_decoder *decoder = decoder_with(&made.model, 1, decode_of(&made), list);
    assert_int_equal(nm_decode_prefixes(decoder, &source, &prefix, &constraints, 1, &out, &err), NM_OK);
    bool found = false;
    assert_int_equal(out.list[0].ids[0], 7);
    for (int32_t t = 0; t < out.list[0].n; t++) {
        int32_t id = out.list[0].ids[t];
        found |= id == 8;
        assert_true(id == 7 || id == 8 || is_selected(list, &source, id));
    }
    assert_true(found && out.list[0].token_scores[0] > -INFINITY);
    nm_translation_release(&out);
    assert_int_equal(nm_decode_score(decoder, &source, &target, 1, NULL, &out, &err), NM_OK);
    assert_true(isfinite(out.list[0].token_scores[0]) && isfinite(out.list[0].token_scores[2]));
    assert_true(out.list[0].token_scores[1] == -INFINITY && out.list[0].score == -INFINITY);
    nm_translation_release(&out);
    nm_decoder_free(decoder);
    list_free(list);
    tiny_release(&made);
    nm_backend_free(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_selection),  cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_languages),  cmocka_unit_test(test_scores),
                                       cmocka_unit_test(test_all_tokens), cmocka_unit_test(test_independence),
                                       cmocka_unit_test(test_required)};
    return cmocka_run_group_tests(tests, enter, leave);
}
