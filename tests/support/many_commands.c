/* The program `norma` for many command lines: runs the command of every line of stdin, in which tabs separate
 * the arguments, in a separate process that is not started anew, and writes what it prints to stderr and a
 * line with its exit code. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int norma_main(int argc, char **argv); /* main of the program */

int main(void)
{
    char line[1024], *argv[32] = {"norma"};
    while (fgets(line, sizeof line, stdin)) {
        int argc = 1, status = 0;
        for (char *word = strtok(line, "\t\n"); word && argc < 31; word = strtok(NULL, "\t\n"))
            argv[argc++] = word;
        argv[argc] = NULL;
        fflush(stdout);
        const pid_t child = fork();
        if (child < 0)
            return 1;
        if (!child) {
            const int null = open("/dev/null", O_RDWR);
            return dup2(1, 2) < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 ? 99 : norma_main(argc, argv);
        }
        if (waitpid(child, &status, 0) != child)
            return 1;
        printf("exit code %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    return 0;
}
