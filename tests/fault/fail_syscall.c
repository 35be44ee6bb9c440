/* Runs a program whose n-th system call of one kind fails:
 *
 *     fail_syscall KIND ERROR AT FOLLOWING REPORT PROGRAM ARGUMENT...
 *
 *     KIND       open, read, write, sync, rename (and link), map, stat, remove, folder (mkdir), lock, process
 *                (and thread)
 *     ERROR      errno as a number
 *     AT         number of the call that fails, from 1; 0: none
 *     FOLLOWING  1: all calls after it fail, too
 *     REPORT     file that gets the number of calls of this kind
 *
 * The kernel passes the system calls of the kind to this process (seccomp, user notification), which counts
 * them, and either runs them or returns the error. Therefore calls inside the C library, as in stdio, are
 * included. Counting starts at the first fcntl(0, F_GETFD), with which main() of norma begins. Calls of child
 * processes, calls on shared libraries and writes to standard error are not counted.
 *
 * The exit code is that of the program, 128 + n after signal n, 77 if the system does not permit this. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_PATH = -1, MAX_CALLS = 8, UNAVAILABLE = 77 };

/* System calls of a kind, and the argument that names the file: a path, or a descriptor. */
typedef struct call {
    int number, path, descriptor;
} call;
static const struct kind {
    const char *name;
    call calls[MAX_CALLS];
} kinds[] = {
    {"open", {{SYS_openat, 1, NO_PATH}, {SYS_open, 0, NO_PATH}}},
    {"read", {{SYS_read, NO_PATH, 0}, {SYS_pread64, NO_PATH, 0}, {SYS_readv, NO_PATH, 0}}},
    {"write", {{SYS_write, NO_PATH, 0}, {SYS_pwrite64, NO_PATH, 0}, {SYS_writev, NO_PATH, 0}}},
    {"sync", {{SYS_fsync, NO_PATH, 0}, {SYS_fdatasync, NO_PATH, 0}}},
    {"rename",
     {{SYS_rename, 0, NO_PATH},
      {SYS_renameat, 1, NO_PATH},
      {SYS_renameat2, 1, NO_PATH},
      {SYS_link, 0, NO_PATH},
      {SYS_linkat, 1, NO_PATH}}},
    {"map", {{SYS_mmap, NO_PATH, 4}, {SYS_mremap, NO_PATH, NO_PATH}}},
    {"stat",
     {{SYS_newfstatat, 1, NO_PATH},
      {SYS_fstat, NO_PATH, 0},
      {SYS_stat, 0, NO_PATH},
      {SYS_lstat, 0, NO_PATH},
      {SYS_access, 0, NO_PATH}}},
    {"remove", {{SYS_unlink, 0, NO_PATH}, {SYS_unlinkat, 1, NO_PATH}, {SYS_rmdir, 0, NO_PATH}}},
    {"folder", {{SYS_mkdir, 0, NO_PATH}, {SYS_mkdirat, 1, NO_PATH}, {SYS_getdents64, NO_PATH, 0}}},
    {"lock", {{SYS_flock, NO_PATH, 0}, {SYS_ftruncate, NO_PATH, 0}}},
    {"process",
     {{SYS_clone3, NO_PATH, NO_PATH}, {SYS_clone, NO_PATH, NO_PATH}, {SYS_vfork, NO_PATH, NO_PATH}}},
};

static const struct kind *find_kind(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, name))
            return &kinds[i];
    fprintf(stderr, "fail_syscall: unknown kind %s\n", name);
    exit(2);
}

/* Installs the filter in this process; returns the descriptor that receives its calls, or -1. */
static int install_filter(const struct kind *kind)
{
    struct sock_filter code[2 * MAX_CALLS + 8];
    unsigned short n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < MAX_CALLS && (kind->calls[i].number || kind->calls[i].path); i++) {
        code[n++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)kind->calls[i].number, 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    }
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 1);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {n, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

static void send_descriptor(int socket, int descriptor)
{
    char byte = 0, space[CMSG_SPACE(sizeof descriptor)] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){CMSG_LEN(sizeof descriptor), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    sendmsg(socket, &message, 0);
}

static int receive_descriptor(int socket)
{
    int descriptor;
    char byte, space[CMSG_SPACE(sizeof descriptor)];
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    if (recvmsg(socket, &message, 0) != 1 || !CMSG_FIRSTHDR(&message))
        return -1;
    memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
    return descriptor;
}

/* The file of a call: "" for none. */
static void read_path(const struct seccomp_notif *request, const call *made, char path[PATH_MAX])
{
    path[0] = 0;
    int descriptor = made->descriptor;
    if (made->path != NO_PATH) {
        struct iovec local = {path, PATH_MAX - 1},
                     remote = {(void *)(uintptr_t)request->data.args[made->path], PATH_MAX - 1};
        /* not across the end of the page, after which there may be no memory */
        size_t in_page = 4096 - request->data.args[made->path] % 4096;
        remote.iov_len = in_page < remote.iov_len ? in_page : remote.iov_len;
        ssize_t n = process_vm_readv((pid_t)request->pid, &local, 1, &remote, 1, 0);
        path[n > 0 ? n : 0] = 0;
        if (!path[0] && made->number == SYS_newfstatat) /* fstat of the C library */
            descriptor = 0;
    }
    if (descriptor != NO_PATH) {
        char link[64];
        snprintf(link, sizeof link, "/proc/%u/fd/%d", request->pid, (int)request->data.args[descriptor]);
        ssize_t n = readlink(link, path, PATH_MAX - 1);
        path[n > 0 ? n : 0] = 0;
    }
}

static bool counts(const struct seccomp_notif *request, const struct kind *kind)
{
    const call *made = kind->calls;
    while (made->number != request->data.nr)
        made++;
    if (!strcmp(kind->name, "write") && request->data.args[0] == 2)
        return false;
    char path[PATH_MAX];
    read_path(request, made, path);
    return !strstr(path, ".so") && !strstr(path, "gconv") && !strstr(path, "locale");
}

int main(int argc, char **argv)
{
    if (argc < 7)
        return 2;
    const struct kind *kind = find_kind(argv[1]);
    int error = atoi(argv[2]), sockets[2];
    long at = atol(argv[3]), count = 0;
    bool following = atoi(argv[4]) != 0, started = false;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
        return 2;
    pid_t child = fork();
    if (!child) {
        int listener = install_filter(kind);
        if (listener < 0)
            _exit(UNAVAILABLE);
        /* sendmsg and execve do not belong to a kind, so that this process does not wait for itself */
        send_descriptor(sockets[1], listener);
        syscall(SYS_close, listener);
        execv(argv[6], argv + 6);
        _exit(127);
    }
    close(sockets[1]);
    int listener = receive_descriptor(sockets[0]), code = 0;
    if (listener < 0) {
        waitpid(child, &code, 0);
        return UNAVAILABLE;
    }
    struct pollfd ready = {listener, POLLIN, 0};
    while (poll(&ready, 1, -1) >= 0 && ready.revents & POLLIN) {
        struct seccomp_notif request = {0};
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &request))
            continue; /* the process was ended in the meantime */
        struct seccomp_notif_resp response = {.id = request.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        char task[64];
        snprintf(task, sizeof task, "/proc/%d/task/%u", child, request.pid);
        bool own = access(task, F_OK) == 0;
        if (request.data.nr == SYS_fcntl)
            started |= own && request.data.args[0] == 0 && request.data.args[1] == F_GETFD;
        else if (started && own && counts(&request, kind)) {
            count++;
            if (at && (count == at || (following && count > at)))
                response = (struct seccomp_notif_resp){.id = request.id, .error = -error};
        }
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
    }
    waitpid(child, &code, 0);
    FILE *stream = fopen(argv[5], "w");
    if (!stream || fprintf(stream, "%ld\n", count) < 0 || fclose(stream))
        return 2;
    return WIFEXITED(code) ? WEXITSTATUS(code) : 128 + WTERMSIG(code);
}
