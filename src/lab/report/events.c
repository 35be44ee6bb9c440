/* Event files are TFRecords: length, checksum of the length, data, checksum of the data; integers are
 * little-endian. The checksum is CRC-32C (Castagnoli), rotated and offset so that the checksum of checksums
 * is not trivial. */
#include "report/events.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "report/event_code.h"

static const char name_end[] = ".norma"; /* distinguishes the event files of Norma from others */

struct nm_events {
    char *log_path, *path;
    FILE *out;
    long read;      /* bytes of the log that have been converted */
    double start;   /* Unix time at which the run started */
    double seconds; /* training time of the last line */
};

uint32_t nm_crc32c(const void *data, size_t bytes)
{
    const uint8_t *at = data;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    }
    return ~crc;
}

static uint32_t masked(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static void put_little(uint8_t *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out[i] = (uint8_t)(value >> 8 * i);
}

static nm_status write_record(nm_events *events, uint8_t *data, size_t bytes, nm_error *err)
{
    uint8_t head[12], tail[4];
    put_little(head, bytes, 8);
    put_little(head + 8, masked(nm_crc32c(head, 8)), 4);
    put_little(tail, masked(nm_crc32c(data, bytes)), 4);
    bool written = fwrite(head, sizeof head, 1, events->out) == 1 &&
                   fwrite(data, bytes, 1, events->out) == 1 && fwrite(tail, sizeof tail, 1, events->out) == 1;
    free(data);
    return written ? NM_OK
                   : nm_fail(err, nm_file_error_status(errno), "%s: writing failed: %s", events->path,
                             strerror(errno));
}

static nm_status write_lines(nm_events *events, const char *text, size_t bytes, nm_error *err)
{
    for (const char *line = text, *end = text + bytes; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        nm_report_run one = {.seconds = events->seconds};
        size_t event_bytes;
        nm_report_run_add(&one, line, (size_t)(stop + 1 - line));
        events->seconds = one.seconds;
        uint8_t *event = nm_event_code_line(&one, events->start, &event_bytes);
        nm_report_run_release(&one);
        if (event)
            NM_TRY(write_record(events, event, event_bytes, err));
        line = stop + 1;
    }
    return NM_OK;
}

/* The complete lines of the log after the bytes already converted; heap, NULL if there are none. A log that
 * does not exist counts as empty. */
static nm_status read_new_lines(const nm_events *events, char **text, size_t *bytes, nm_error *err)
{
    struct stat about;
    FILE *log = fopen(events->log_path, "rb");
    *text = NULL;
    *bytes = 0;
    if (!log && errno == ENOENT)
        return NM_OK;
    bool failed = !log || fstat(fileno(log), &about) || fseek(log, events->read, SEEK_SET);
    if (!failed && about.st_size > events->read) {
        *text = nm_allocate((size_t)(about.st_size - events->read) + 1);
        *bytes = fread(*text, 1, (size_t)(about.st_size - events->read), log);
        failed = ferror(log) != 0;
        while (*bytes && (*text)[*bytes - 1] != '\n')
            --*bytes;
    }
    nm_status status = failed ? nm_fail(err, nm_file_error_status(errno), "%s: reading failed: %s",
                                        events->log_path, strerror(errno))
                              : NM_OK;
    if (log)
        fclose(log);
    return status;
}

nm_status nm_events_follow(nm_events *events, nm_error *err)
{
    size_t bytes;
    NM_AUTO_FREE char *text = NULL;
    nm_status status = read_new_lines(events, &text, &bytes, err);
    if (status == NM_OK && bytes)
        status = write_lines(events, text, bytes, err);
    events->read += (long)bytes;
    return status == NM_OK && bytes ? nm_file_flush(events->out, events->path, err) : status;
}

static void remove_old_events(const char *folder)
{
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && (entry = readdir(directory)) != NULL;) {
        size_t length = strlen(entry->d_name), end = strlen(name_end);
        if (strncmp(entry->d_name, "events.out.tfevents.", 20) || length < end ||
            strcmp(entry->d_name + length - end, name_end))
            continue;
        NM_AUTO_FREE char *path = nm_path_join(folder, entry->d_name);
        unlink(path);
    }
    if (directory)
        closedir(directory);
}

/* The start time of the run: the last modification of the log minus the training time of its last line. */
static nm_status find_start(nm_events *events, nm_error *err)
{
    struct stat about;
    size_t bytes;
    NM_AUTO_FREE char *text = NULL;
    nm_status status = read_new_lines(events, &text, &bytes, err);
    nm_report_run all = {0};
    if (status == NM_OK)
        nm_report_run_add(&all, text, bytes);
    if (!stat(events->log_path, &about))
        events->start = (double)about.st_mtime - all.seconds;
    nm_report_run_release(&all);
    return status;
}

static nm_status open_file(nm_events *events, const char *folder, nm_error *err)
{
    size_t bytes;
    NM_TRY(nm_folder_create(folder, err));
    remove_old_events(folder);
    NM_TRY(find_start(events, err));
    events->path = nm_format("%s/events.out.tfevents.%010lld%s", folder, (long long)events->start, name_end);
    NM_TRY(nm_file_open(&events->out, events->path, "wb", err));
    uint8_t *version = nm_event_code_version(events->start, &bytes);
    return write_record(events, version, bytes, err);
}

nm_status nm_events_open(nm_events **out, const char *run_folder, const char *folder, nm_error *err)
{
    *out = NULL;
    if (!nm_event_code_available())
        return nm_fail(err, NM_UNSUPPORTED,
                       "this program was built without TensorBoard event files; install the Debian packages "
                       "libprotobuf-c-dev and protobuf-c-compiler and build again");
    nm_events *events = nm_allocate(sizeof *events);
    events->log_path = nm_path_join(run_folder, "log.jsonl");
    nm_status status = open_file(events, folder, err);
    NM_RETURN_NEW(status, out, events, nm_events_close);
}

void nm_events_close(nm_events *events)
{
    if (!events)
        return;
    if (events->out)
        fclose(events->out);
    NM_FREE(events->path, events->log_path, events);
}
