/* Asks for the host's MAC address, waits for standard input, and reserves. Prints the results. */
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "mswitch_reservation.h"

int main(int argc, char **argv) {
    char reason[256] = "";
    uint8_t mac[6];
    int fd = argc == 2 ? msw_reservations_open(argv[1]) : -1;
    struct timeval limit = {.tv_usec = 50000};
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0) return 1;
    printf("%d\n", msw_host_mac(fd, mac, reason, sizeof reason));
    fflush(stdout);
    getchar();
    printf("%d", msw_reserve(fd, "s1", "tcp", "192.0.2.1", 80, 80, reason, sizeof reason));
    printf(" %s\n", reason);
    return 0;
}
