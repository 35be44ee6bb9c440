/* The SIGBUS handler uses only async-signal-safe functions. It looks up the mapped file of the address in
 * /proc/self/maps. */
#include "cli/map_fault.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

/* Reads a hexadecimal number and sets *rest to the text after it. */
static uintptr_t parse_address(const char *text, const char **rest)
{
    uintptr_t value = 0;
    for (;; text++) {
        int digit = *text >= '0' && *text <= '9'   ? *text - '0'
                    : *text >= 'a' && *text <= 'f' ? *text - 'a' + 10
                                                   : -1;
        if (digit < 0)
            break;
        value = value << 4 | (uintptr_t)digit;
    }
    *rest = text;
    return value;
}

/* The path in a line "BEGIN-END FLAGS OFFSET DEVICE INODE PATH" if the range contains the address, otherwise
 * NULL. */
static const char *path_in_line(const char *line, uintptr_t address)
{
    const char *rest;
    uintptr_t begin = parse_address(line, &rest);
    if (address < begin || *rest != '-' || address >= parse_address(rest + 1, &rest))
        return NULL;
    return strchr(rest, '/');
}

/* The path of the mapping that contains the address; "" if there is none. Lines longer than the buffer are
 * truncated. */
static const char *mapped_path(uintptr_t address, char *buffer, size_t bytes)
{
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    const char *path = NULL;
    char byte;
    while (fd >= 0 && !path && read(fd, &byte, 1) == 1) {
        if (byte != '\n') {
            if (used < bytes - 1)
                buffer[used++] = byte;
            continue;
        }
        buffer[used] = 0;
        path = path_in_line(buffer, address);
        used = 0;
    }
    if (fd >= 0)
        close(fd);
    return path ? path : "";
}

static void write_text(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code != BUS_ADRERR) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    char buffer[4096];
    const char *path = mapped_path((uintptr_t)info->si_addr, buffer, sizeof buffer);
    write_text("norma: ");
    write_text(*path ? path : "a mapped file");
    write_text(": was truncated while it was read, or cannot be read\n");
    _exit(NM_IO);
}

void nm_cli_handle_map_faults(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, &action, NULL);
    nm_file_map_faults_are_handled();
}
