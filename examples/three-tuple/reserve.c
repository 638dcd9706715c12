/*
 * Reserves an endpoint of the host for a port of the switch, until standard input ends:
 *
 *     cc -Isdk/c -o reserve examples/three-tuple/reserve.c sdk/c/mswitch_reservation.c
 *     ./reserve /run/mswitch/br0.reserve stack1 tcp 192.0.2.1 80
 */
#include <stdio.h>
#include <stdlib.h>

#include "mswitch_reservation.h"

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: reserve SOCKET PORT PROTOCOL ADDRESS LOCAL-PORT\n");
        return 2;
    }
    int fd = msw_reservations_open(argv[1]);
    if (fd < 0) {
        perror(argv[1]);
        return 1;
    }
    char reason[512];
    uint16_t port = (uint16_t)atoi(argv[5]);
    if (msw_reserve(fd, argv[2], argv[3], argv[4], port, port, reason, sizeof reason) < 0) {
        fprintf(stderr, "%s\n", reason);
        return 1;
    }
    uint8_t mac[6];
    if (msw_host_mac(fd, mac, reason, sizeof reason) == 0)
        printf("reserved; the host is %02x:%02x:%02x:%02x:%02x:%02x\n", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
    else
        printf("reserved; %s\n", reason);
    fflush(stdout);
    while (getchar() != EOF) {
    }
    return 0;
}
