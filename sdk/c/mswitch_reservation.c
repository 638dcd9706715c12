#include "mswitch_reservation.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* Time allowed for an answer, seconds. */
enum { LIMIT = 10 };

/* Longest request and answer with their ends, bytes. */
enum { REQUEST = 257, ANSWER = 4096 };

int msw_reservations_open(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    struct timeval limit = {.tv_sec = LIMIT};
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) < 0 ||
        connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static int failed(char *reason, size_t room, const char *text) {
    if (room > 0) snprintf(reason, room, "%s", text);
    return -1;
}

/* Ends the connection: a late answer would be taken for that to the next request. */
static int broken(int fd, char *reason, size_t room, const char *text) {
    failed(reason, room, text);
    shutdown(fd, SHUT_RDWR);
    return -2;
}

/* Sends a line and reads its answer, without its end. */
static int ask(int fd, const char *line, char answer[ANSWER], char *reason, size_t room) {
    size_t length = strlen(line), sent = 0, got = 0;
    while (sent < length) {
        ssize_t n = send(fd, line + sent, length - sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        /* A client that was turned away cannot send, but finds the reason. */
        if (n < 0 && errno == EPIPE) break;
        if (n < 0) return broken(fd, reason, room, strerror(errno));
        sent += (size_t)n;
    }
    while (got == 0 || answer[got - 1] != '\n') {
        if (got == ANSWER - 1) return broken(fd, reason, room, "the switch's answer is too long");
        ssize_t n = recv(fd, answer + got, ANSWER - 1 - got, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return broken(fd, reason, room, strerror(errno));
        if (n == 0) return broken(fd, reason, room, "the connection to the switch is closed");
        got += (size_t)n;
    }
    answer[got - 1] = 0;
    if (strncmp(answer, "error ", 6) == 0) return failed(reason, room, answer + 6);
    if (sent < length) return broken(fd, reason, room, "the connection to the switch is closed");
    if (strncmp(answer, "ok", 2) == 0 && (answer[2] == 0 || answer[2] == ' ')) return 0;
    return broken(fd, reason, room, "the switch's answer is not understood");
}

static int endpoints(int fd, const char *verb, const char *port, const char *protocol, const char *address,
                     uint16_t first, uint16_t last, char *reason, size_t room) {
    char line[REQUEST + 1], answer[ANSWER];
    int length = snprintf(line, sizeof line, "%s %s %s %s %u-%u\n", verb, port, protocol, address, first, last);
    if (length < 0 || (size_t)length >= sizeof line) return failed(reason, room, "the request is too long");
    return ask(fd, line, answer, reason, room);
}

int msw_reserve(int fd, const char *port, const char *protocol, const char *address, uint16_t first, uint16_t last,
                char *reason, size_t room) {
    return endpoints(fd, "reserve", port, protocol, address, first, last, reason, room);
}

int msw_release(int fd, const char *port, const char *protocol, const char *address, uint16_t first, uint16_t last,
                char *reason, size_t room) {
    return endpoints(fd, "release", port, protocol, address, first, last, reason, room);
}

int msw_host_mac(int fd, uint8_t mac[6], char *reason, size_t room) {
    char answer[ANSWER];
    unsigned int byte[6];
    int result = ask(fd, "mac\n", answer, reason, room);
    if (result < 0) return result;
    if (sscanf(answer, "ok %2x:%2x:%2x:%2x:%2x:%2x", &byte[0], &byte[1], &byte[2], &byte[3], &byte[4], &byte[5]) != 6)
        return broken(fd, reason, room, "the switch's answer is not understood");
    for (int i = 0; i < 6; i++) mac[i] = (uint8_t)byte[i];
    return 0;
}
