/* norma watch: the page of norma report, served while the runs train. One thread answers the requests and
 * reads the logs; a page that is shown receives an event after each change and then fetches the new body. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/watch_text.h"

typedef struct watch_config { /* section [watch] */
    int64_t port;
    const char *bind;
    bool samples, text;
} watch_config;

static const nm_option watch_options[] = {
    NM_OPTION(watch_config, port, "7070", 0, 65535, "TCP port; 0: any free port."),
    NM_OPTION(watch_config, bind, "127.0.0.1", 0, 0, "IPv4 address to listen at; 0.0.0.0: all addresses."),
    NM_OPTION(watch_config, samples, "true", 0, 1,
              "Show sample outputs; without them the page contains no sentence of the corpus."),
    NM_OPTION(watch_config, text, "false", 0, 1,
              "Show the runs in this terminal instead of a browser; q ends it. Printed once if the output is "
              "no terminal."),
    {0}};

#ifdef NORMA_MICROHTTPD
#include <microhttpd.h>

#include "base/memory.h"

enum { MOST_CLIENTS = 64, IDLE_SECONDS = 15, POLL_MS = 100, HEARTBEAT_POLLS = 50 };

typedef struct watch {
    nm_watch_runs runs;
    nm_report_config page;
    struct MHD_Response *body; /* of the current version; NULL: not yet made */
    uint64_t version, polls;
    struct stream *streams;
} watch;

typedef struct stream { /* events of one client */
    watch *owner;
    struct MHD_Connection *connection;
    uint64_t version, polls; /* sent */
    bool suspended;
    struct stream *next;
} stream;

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
    (void)signal;
    stopped = 1;
}

/* A page of another site that resolves its own name to this machine (DNS rebinding) sends that name: only
 * addresses and localhost are accepted. */
static bool is_own_host(const char *host)
{
    char name[64];
    struct in6_addr address;
    if (!host)
        return false;
    bool bracket = *host == '[';
    size_t length = strcspn(host + bracket, bracket ? "]" : ":");
    if (!length || length >= sizeof name)
        return false;
    memcpy(name, host + bracket, length);
    name[length] = 0;
    return !strcasecmp(name, "localhost") || inet_pton(bracket ? AF_INET6 : AF_INET, name, &address) == 1;
}

static struct MHD_Response *response_of(char *text, size_t bytes, const char *type)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(bytes, text, MHD_RESPMEM_MUST_FREE);
    MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "X-Frame-Options", "DENY");
    MHD_add_response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
    return response;
}

static enum MHD_Result refuse(struct MHD_Connection *connection, unsigned code, const char *why)
{
    struct MHD_Response *response = response_of(nm_duplicate(why), strlen(why), "text/plain");
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, "Allow", "GET");
    enum MHD_Result result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

static ssize_t read_events(void *user, uint64_t position, char *text, size_t most)
{
    stream *s = user;
    int n = 0;
    (void)position;
    if (s->version != s->owner->version)
        n = snprintf(text, most, "retry: 1000\nevent: change\ndata: %llu\n\n",
                     (unsigned long long)s->owner->version);
    else if (s->owner->polls - s->polls >= HEARTBEAT_POLLS)
        n = snprintf(text, most, ": alive\n\n");
    if (n <= 0 || (size_t)n >= most) {
        s->suspended = true;
        MHD_suspend_connection(s->connection);
        return 0;
    }
    s->version = s->owner->version;
    s->polls = s->owner->polls;
    return n;
}

static void close_events(void *user)
{
    stream *s = user, **at = &s->owner->streams;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    free(s);
}

static enum MHD_Result answer_events(watch *w, struct MHD_Connection *connection)
{
    stream *s = nm_allocate(sizeof *s);
    *s = (stream){.owner = w, .connection = connection, .next = w->streams};
    w->streams = s;
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 256, read_events, s, close_events);
    MHD_add_response_header(response, "Content-Type", "text/event-stream");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    enum MHD_Result result = MHD_queue_response(connection, MHD_HTTP_OK, response);
    MHD_destroy_response(response);
    return result;
}

static double query_number(struct MHD_Connection *connection, const char *key)
{
    const char *text = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, key);
    return text ? strtod(text, NULL) : 0;
}

static enum MHD_Result answer_text(watch *w, struct MHD_Connection *connection, const char *url)
{
    char *text = NULL;
    size_t bytes;
    bool is_figure = !strcmp(url, "/figure"), found = true;
    FILE *out = nm_text_stream_open(&text, &bytes);
    if (is_figure) {
        const char *name = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "name");
        double points = query_number(connection, "points");
        found = nm_report_write_figure(&w->runs.report, name ? name : "", query_number(connection, "from"),
                                       query_number(connection, "to"),
                                       points >= 100 && points <= 8000 ? (size_t)points : 800, out);
    } else {
        nm_report_write(&w->runs.report, &w->page, out);
    }
    nm_text_stream_close(out);
    if (!found) {
        free(text);
        return refuse(connection, MHD_HTTP_NOT_FOUND, "no such figure\n");
    }
    struct MHD_Response *response =
        response_of(text, strlen(text), is_figure ? "application/json" : "text/html; charset=utf-8");
    enum MHD_Result result = MHD_queue_response(connection, MHD_HTTP_OK, response);
    MHD_destroy_response(response);
    return result;
}

/* All clients of a version share one copy of the body, also slow ones. */
static enum MHD_Result answer_body(watch *w, struct MHD_Connection *connection)
{
    if (!w->body) {
        char *text = NULL;
        size_t bytes;
        FILE *out = nm_text_stream_open(&text, &bytes);
        nm_report_write_body(&w->runs.report, &w->page, out);
        nm_text_stream_close(out);
        w->body = response_of(text, strlen(text), "text/html; charset=utf-8");
    }
    return MHD_queue_response(connection, MHD_HTTP_OK, w->body);
}

static enum MHD_Result answer(void *user, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *data, size_t *bytes,
                              void **state)
{
    watch *w = user;
    (void)version;
    (void)data;
    if (*bytes || !*state) { /* the first call is before the body of the request, which is ignored */
        *bytes = 0;
        *state = w;
        return MHD_YES;
    }
    if (!is_own_host(MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host")))
        return refuse(connection, MHD_HTTP_FORBIDDEN, "use the address of this machine, or localhost\n");
    if (strcmp(method, "GET"))
        return refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET\n");
    if (!strcmp(url, "/") || !strcmp(url, "/figure"))
        return answer_text(w, connection, url);
    if (!strcmp(url, "/update"))
        return answer_body(w, connection);
    return strcmp(url, "/events") ? refuse(connection, MHD_HTTP_NOT_FOUND, "no such page\n")
                                  : answer_events(w, connection);
}

/* Reads the logs, and wakes the streams that have something to send. A file that is being replaced is read in
 * the next round. */
static void poll_runs(watch *w)
{
    nm_error err;
    bool changed;
    if (nm_watch_runs_poll(&w->runs, &changed, &err) != NM_OK)
        fprintf(stderr, "norma: warning: %s\n", err.text);
    w->polls++;
    if (changed) {
        w->version++;
        if (w->body)
            MHD_destroy_response(w->body);
        w->body = NULL;
    }
    for (stream *s = w->streams; s; s = s->next)
        if (s->suspended && (s->version != w->version || w->polls - s->polls >= HEARTBEAT_POLLS)) {
            s->suspended = false;
            MHD_resume_connection(s->connection);
        }
}

static nm_status serve(watch *w, const watch_config *config, nm_error *err)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)config->port)};
    if (inet_pton(AF_INET, config->bind, &address.sin_addr) != 1)
        return nm_fail(err, NM_USAGE, "watch.bind = %s is not an IPv4 address", config->bind);
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_ALLOW_SUSPEND_RESUME | MHD_USE_EPOLL, (uint16_t)config->port, NULL, NULL, answer, w,
        MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_CONNECTION_LIMIT, (unsigned)MOST_CLIENTS,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_END);
    if (!daemon)
        return nm_fail(err, NM_IO, "cannot listen at %s:%lld; choose another --port", config->bind,
                       (long long)config->port);
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT);
    printf("http://%s:%u/\n", config->bind, info ? (unsigned)info->port : (unsigned)config->port);
    fflush(stdout);
    while (!stopped) {
        MHD_run_wait(daemon, POLL_MS);
        poll_runs(w);
    }
    for (stream *s = w->streams; s; s = s->next)
        if (s->suspended)
            MHD_resume_connection(s->connection);
    MHD_stop_daemon(daemon);
    return nm_fail(err, NM_INTERRUPTED, "interrupted");
}

static nm_status start(const watch_config *config, int argc, char **argv, nm_error *err)
{
    bool changed;
    watch w = {.version = 1, .runs = {.given = (const char *const *)argv, .n_given = (size_t)argc}};
    w.page = (nm_report_config){.samples = config->samples,
                                .live = true,
                                .answer = nm_watch_runs_write_answer,
                                .extra = nm_watch_runs_write_queue,
                                .user = &w.runs};
    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGINT, &(struct sigaction){.sa_handler = stop}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = stop}, NULL);
    nm_status status = nm_watch_runs_poll(&w.runs, &changed, err);
    if (status == NM_OK && !w.runs.n)
        fprintf(stderr, "norma: no run has a log yet; the page shows it when it has\n");
    NM_THEN(status, serve(&w, config, err));
    if (w.body)
        MHD_destroy_response(w.body);
    nm_watch_runs_release(&w.runs);
    return status;
}
#else
static nm_status start(const watch_config *config, int argc, char **argv, nm_error *err)
{
    (void)config;
    (void)argc;
    (void)argv;
    return nm_fail(
        err, NM_UNSUPPORTED,
        "this build has no web server: install the Debian package libmicrohttpd-dev and build again");
}
#endif

static int run(nm_cli *cli, int argc, char **argv)
{
    nm_error err;
    nm_status status = nm_cli_check_arguments(cli, argc, argv, 1, NM_CLI_NO_LIMIT, &err);
    const watch_config *config = nm_options_find(cli->options, "watch");
    nm_watch_runs runs = {.given = (const char *const *)argv, .n_given = (size_t)argc};
    NM_THEN(status, config->text ? nm_watch_text(&runs, &err) : start(config, argc, argv, &err));
    nm_watch_runs_release(&runs);
    return status == NM_OK ? 0 : nm_cli_fail(&err);
}

const nm_command nm_command_watch = {
    .name = "watch",
    .summary = "show runs, a comparison or a study in the browser while they train",
    .usage = "FOLDER ... [--port 7070] [--bind 127.0.0.1] [--text]",
    .details =
        "Serves the page of norma report for the runs in each FOLDER (a run, or a folder of runs such as "
        "that "
        "of norma compare or norma study) and updates it while they train. With the queue of a study, it "
        "shows which runs have ended and how long the others take. Open the printed address in a browser; on "
        "another machine, use ssh -L 7070:localhost:7070 HOST. The page needs no network, and reconnects "
        "after a restart. --text shows curves, runs and queue in the terminal. Ctrl-C ends the server with "
        "exit code 9.",
    .section = "watch",
    .rows = watch_options,
    .config_bytes = sizeof(watch_config),
    .run = run,
};
