#include "convert/yaml_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"

nm_status nm_yaml_read(json_t **value, const char *path, nm_error *err)
{
    NM_AUTO_FREE char *text = NULL;
    size_t bytes = 0;
    *value = NULL;
    NM_TRY(nm_file_read_text(path, &text, &bytes, err));
    return nm_yaml_parse(value, text, bytes, path, err);
}

#ifdef NORMA_YAML

#include <yaml.h>

typedef struct yaml_document {
    yaml_document_t document;
    const char *name;
    size_t visits; /* number of visited nodes; if it exceeds the number of nodes, there is an alias */
    nm_error *err;
} yaml_document;

static nm_status bad_node(const yaml_document *self, const yaml_node_t *node, const char *what)
{
    return nm_fail(self->err, NM_FORMAT, "%s:%zu: %s", self->name, node->start_mark.line + 1, what);
}

static const char *scalar_text(const yaml_node_t *node)
{
    const char *text = (const char *)node->data.scalar.value;
    return strlen(text) == node->data.scalar.length ? text : NULL;
}

static nm_status convert_scalar(const yaml_document *self, const yaml_node_t *node, json_t **value)
{
    const char *text = scalar_text(node);
    if (!text)
        return bad_node(self, node, "a NUL character");
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    bool plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (plain && *text && !*end && !errno && !strchr(" +\t", *text))
        *value = json_integer(number);
    else if (plain && (!strcmp(text, "true") || !strcmp(text, "false")))
        *value = json_boolean(*text == 't');
    else
        *value = json_string(text);
    return *value ? NM_OK : bad_node(self, node, "a text is not UTF-8");
}

static nm_status convert(yaml_document *self, int index, json_t **value);

static nm_status convert_list(yaml_document *self, const yaml_node_t *node, json_t *list)
{
    for (const yaml_node_item_t *item = node->data.sequence.items.start; item < node->data.sequence.items.top;
         item++) {
        json_t *value = NULL;
        NM_TRY(convert(self, *item, &value));
        json_array_append_new(list, value);
    }
    return NM_OK;
}

static nm_status convert_map(yaml_document *self, const yaml_node_t *node, json_t *object)
{
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top;
         pair++) {
        const yaml_node_t *key = yaml_document_get_node(&self->document, pair->key);
        const char *text = key && key->type == YAML_SCALAR_NODE ? scalar_text(key) : NULL;
        self->visits++;
        if (!text)
            return bad_node(self, key ? key : node, "a key is not a text");
        if (json_object_get(object, text))
            return bad_node(self, key, "a key occurs twice");
        json_t *value = NULL;
        NM_TRY(convert(self, pair->value, &value));
        if (json_object_set_new(object, text, value))
            return bad_node(self, key, "a key is not UTF-8");
    }
    return NM_OK;
}

static nm_status convert(yaml_document *self, int index, json_t **value)
{
    yaml_document_t *document = &self->document;
    const yaml_node_t *node = yaml_document_get_node(document, index);
    NM_ASSERT(node);
    if (++self->visits > (size_t)(document->nodes.top - document->nodes.start))
        return bad_node(self, node, "aliases are not supported");
    if (node->type == YAML_SCALAR_NODE)
        return convert_scalar(self, node, value);
    *value = node->type == YAML_SEQUENCE_NODE ? json_array() : json_object();
    nm_status status =
        node->type == YAML_SEQUENCE_NODE ? convert_list(self, node, *value) : convert_map(self, node, *value);
    if (status != NM_OK) {
        json_decref(*value);
        *value = NULL;
    }
    return status;
}

static nm_status fail_parsing(const yaml_parser_t *parser, const char *name, nm_error *err)
{
    /* libyaml sets no error if it cannot allocate some of its strings */
    if (parser->error == YAML_MEMORY_ERROR || parser->error == YAML_NO_ERROR)
        return nm_fail(err, NM_MEMORY, "%s: out of memory", name);
    return nm_fail(err, NM_FORMAT, "%s:%zu: %s", name, parser->problem_mark.line + 1,
                   parser->problem ? parser->problem : "not YAML");
}

/* Checks the nesting before the document is loaded, because its conversion is recursive. */
static nm_status check_depth(const void *text, size_t bytes, const char *name, nm_error *err)
{
    enum { MAX_DEPTH = 16 };
    yaml_parser_t parser;
    yaml_event_t event;
    int depth = 0;
    bool ended = false;
    nm_status status = NM_OK;
    if (!yaml_parser_initialize(&parser))
        return nm_fail(err, NM_MEMORY, "%s: out of memory", name);
    yaml_parser_set_input_string(&parser, text, bytes);
    while (!ended && status == NM_OK) {
        if (!yaml_parser_parse(&parser, &event)) {
            status = fail_parsing(&parser, name, err);
            break;
        }
        depth += event.type == YAML_MAPPING_START_EVENT || event.type == YAML_SEQUENCE_START_EVENT;
        depth -= event.type == YAML_MAPPING_END_EVENT || event.type == YAML_SEQUENCE_END_EVENT;
        ended = event.type == YAML_STREAM_END_EVENT;
        if (depth > MAX_DEPTH)
            status = nm_fail(err, NM_FORMAT, "%s:%zu: nested too deeply", name, event.start_mark.line + 1);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return status;
}

nm_status nm_yaml_parse(json_t **value, const void *text, size_t bytes, const char *name, nm_error *err)
{
    yaml_parser_t parser;
    yaml_document self = {.name = name, .err = err};
    *value = NULL;
    NM_TRY(check_depth(text, bytes, name, err));
    if (!yaml_parser_initialize(&parser))
        return nm_fail(err, NM_MEMORY, "%s: out of memory", name);
    yaml_parser_set_input_string(&parser, text, bytes);
    if (!yaml_parser_load(&parser, &self.document)) {
        nm_status status = fail_parsing(&parser, name, err);
        yaml_parser_delete(&parser);
        return status;
    }
    const yaml_node_t *root = yaml_document_get_root_node(&self.document);
    nm_status status = root && root->type == YAML_MAPPING_NODE
                           ? convert(&self, 1, value)
                           : nm_fail(err, NM_FORMAT, "%s: not a mapping of names to values", name);
    yaml_document_delete(&self.document);
    yaml_parser_delete(&parser);
    return status;
}

#else

nm_status nm_yaml_parse(json_t **value, const void *text, size_t bytes, const char *name, nm_error *err)
{
    (void)text, (void)bytes;
    *value = NULL;
    return nm_fail(
        err, NM_UNSUPPORTED,
        "%s: this program was built without YAML; install the Debian package libyaml-dev and build again",
        name);
}

#endif
