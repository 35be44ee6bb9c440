/* Labeled texts: lines that begin with the label, fastText's label prefix, and JSON lines. */
#include "data/labeled.h"

#include <stdlib.h>
#include <string.h>

#include "text_helper.h"

static nm_labeled_config config_of(nm_labeled_format format, bool with_label)
{
    return (nm_labeled_config){.encoding = "utf-8",
                               .format = format,
                               .label = "1",
                               .text = "2",
                               .lines_by_default = !with_label,
                               .with_label = with_label};
}

/* Reads content as a file; expected: "label|text;label|text;", or the message of an error. */
static void check(const nm_labeled_config *config, const char *content, const char *expected)
{
    char *path = write_temporary(content, strlen(content));
    nm_buffer got = {0};
    nm_labeled texts;
    nm_error err;
    bool more = true;
    nm_buffer_clear(&got);
    nm_status status = nm_labeled_open(&texts, path, config, &err);
    while (status == NM_OK && more) {
        status = nm_labeled_next(&texts, &more, &err);
        if (status == NM_OK && more) {
            nm_buffer_append(&got, texts.label, strlen(texts.label));
            nm_buffer_append_byte(&got, '|');
            nm_buffer_append(&got, texts.text.data, texts.text.bytes);
            nm_buffer_append_byte(&got, ';');
        }
    }
    nm_labeled_close(&texts);
    if (status == NM_OK)
        assert_string_equal(got.data, expected);
    else if (!strstr(err.text, expected))
        fail_msg("'%s' is not in: %s", expected, err.text);
    nm_buffer_release(&got);
    remove_temporary(path);
}

static void label_in_front(void **state)
{
    (void)state;
    const nm_labeled_config space = config_of(NM_LABELED_SPACE, true),
                            fasttext = config_of(NM_LABELED_FASTTEXT, true),
                            plain = config_of(NM_LABELED_FASTTEXT, false),
                            tsv = config_of(NM_LABELED_TSV, true);
    check(&space, "good a  fine day\nbad\train\n\ngood\n", "good|a  fine day;bad|rain;good|;");
    check(&space, " no label\n", ":1: the label is empty");
    check(&fasttext, "__label__good a day\n__label__bad rain\n", "good|a day;bad|rain;");
    check(&fasttext, "__label__good a day\nrain\n", ":2: does not begin with __label__");
    check(&fasttext, "__label__good __label__bad a day\n", ":1: more than one label");
    check(&plain, "__label__good a day\nplain words\n", "|a day;|plain words;");
    check(&tsv, "good a day\n", "is the format space or fasttext");
}

/* Columns by the names in the header, and without a header by their position; a row of data is never used as
 * a header. */
static void columns_by_header(void **state)
{
    (void)state;
    nm_labeled_config csv = config_of(NM_LABELED_CSV, true), plain = config_of(NM_LABELED_CSV, false);
    csv.label = plain.label = csv.text = plain.text = "auto";
    check(&csv, "text,label\na day,good\nrain,bad\n", "good|a day;bad|rain;");
    check(&csv, "id,Class,Sentence\n1,good,a day\n", "good|a day;");
    check(&csv, "label,body\ngood,a day\n", "good|a day;");
    check(&csv, "good,a day\nbad,label\n", "good|a day;bad|label;");
    check(&csv, "good,label\nbad,text\n", "good|label;bad|text;");
    check(&csv, "good,text\n", "good|text;");
    check(&plain, "id,text\n7,a day\n", "|a day;");
    check(&plain, "text,label\na day,good\n", "|a day;");
    check(&plain, "label\ntext\n", "|text;");
    check(&plain, "Text\na day\ntext\n", "|a day;|text;");
    check(&plain, "a day\ntext\n", "|a day;|text;");
    plain.header = NM_CHOICE_NO;
    check(&plain, "text\na day\n", "|text;|a day;");
    csv.label = "2";
    check(&csv, "a day,good\nrain,bad\n", "good|a day;bad|rain;");
    check(&csv, "text,good\n", "good|text;");
    csv.text = "1,2";
    check(&csv, "a day,good\n", "column 2 is that of the label and of the text (label, text)");
    csv.label = csv.text = "body";
    check(&csv, "label,body\ngood,a day\n", "column 2 is that of the label and of the text");
    plain.header = NM_CHOICE_YES;
    plain.label = plain.text = "body";
    check(&plain, "label,body\ngood,a day\n", "|a day;");
    csv.label = "1", csv.text = "2";
    check(&csv, "text,label\na day,good\n", "text|label;a day|good;");
}

static void semicolons(void **state)
{
    (void)state;
    nm_labeled_config csv = config_of(NM_LABELED_CSV, true);
    csv.label = csv.text = "auto";
    check(&csv, "label;text\ngood;a day, fine\nbad;\"rain; cold\"\n", "good|a day, fine;bad|rain; cold;");
    check(&csv, "good;\"a \"\"day\"\"\"\nbad;rain\n", "good|a \"day\";bad|rain;");
    check(&csv, "\"label\";\"text\"\n\"good\";\"a day\"\n", "good|a day;");
    check(&csv, "label,text\ngood,a; day\n", "good|a; day;"); /* the first row has commas */
    check(&csv, "good,a; day\nbad;rain,x\n", "good|a; day;bad;rain|x;");
    check(&csv, "good;a day\nbad\n", ":2: 1 field, the first row has 2");
    /* Texts without labels are a table of one column unless the first row names one. */
    csv.with_label = false;
    check(&csv, "id;text\n1;a day\n", "|a day;");
    check(&csv, "fine; a day\nrain; cold\n", "|fine; a day;|rain; cold;");
    csv.text = "body";
    check(&csv, "id;body\n1;a day\n", "|a day;");
    nm_labeled_config tsv = config_of(NM_LABELED_TSV, true);
    check(&tsv, "good;a day\n", ":1: no column 2: the first row has 1 field");
}

static void json_lines(void **state)
{
    (void)state;
    nm_labeled_config json = config_of(NM_LABELED_JSON, true);
    check(&json,
          "{\"label\": \"good\", \"text\": \"a\\nday\"}\n\n{\"text\": \"rain\", \"label\": 3, \"more\": "
          "null}\n",
          "good|a day;3|rain;");
    check(&json, "{\"label\": \"good\"}\n", ":1: the object has no text \"text\"");
    check(&json, "{\"label\": \"good\", \n", ":1: not a JSON object");
    check(&json, "[1]\n", ":1: not a JSON object: an array; JSON lines have an object per line");
    check(&json, "{\"label\": true, \"text\": \"a day\"}\n",
          ":1: \"label\" is a boolean, not a string or a number");
    check(&json, "{\"label\": 1, \"text\": [\"a day\"]}\n", ":1: \"text\" is an array, not");
    check(&json, "{\"label\": {}, \"text\": \"a day\"}\n", ":1: \"label\" is an object, not");
    check(&json, "{\"label\": null, \"text\": \"a day\"}\n", ":1: \"label\" is null, not");
    json.label = json.text = "auto";
    check(&json, "{\"label\": \"good\", \"text\": \"a day\"}\n", "good|a day;");
    json.label = "stars";
    json.text = "title,body";
    check(&json, "{\"stars\": 5, \"title\": \"Good\", \"body\": \"day\"}\n", "5|Good day;");
    json.label = "body";
    check(&json, "{\"stars\": 5, \"title\": \"Good\", \"body\": \"day\"}\n",
          "\"body\" is the field of the label and of the text (label, text)");
    json.with_label = false;
    check(&json, "{\"title\": \"Good\", \"body\": \"day\"}\n", "|Good day;");
}

static void other_encodings(void **state)
{
    (void)state;
    nm_labeled_config latin1 = config_of(NM_LABELED_TSV, true);
    latin1.encoding = "latin1";
    check(&latin1, "gut\tsch\xF6n\n", "gut|schön;");
    latin1.encoding = "utf-8";
    check(&latin1, "gut\tsch\xF6n\n", "not UTF-8");
    latin1.encoding = "klingon";
    check(&latin1, "gut\tsch\xF6n\n", "unknown encoding \"klingon\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(label_in_front), cmocka_unit_test(columns_by_header),
                                       cmocka_unit_test(semicolons), cmocka_unit_test(json_lines),
                                       cmocka_unit_test(other_encodings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
