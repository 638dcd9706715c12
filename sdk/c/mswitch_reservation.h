/*
 * Client of the logic `three-tuple`: reserves <protocol, address, port> of the host for a user-level protocol stack at
 * a port of the switch. Compile mswitch_reservation.c with the program.
 *
 *     char reason[256];
 *     int switch_fd = msw_reservations_open("/run/mswitch/br0.reserve");
 *     if (msw_reserve(switch_fd, "stack1", "tcp", "192.0.2.1", 80, 80, reason, sizeof reason) < 0)
 *         fprintf(stderr, "%s\n", reason);
 *
 * Reservations end when the descriptor is closed or the process ends. A connection serves one thread at a time.
 *
 * Requests return 0, or put a text of up to `room` bytes into `reason` and return
 *     -1: the switch refuses, or the request is too long;
 *     -2: the connection failed, or an answer came too late or is not understood. The connection is shut down, and all
 *         its reservations have ended: close the descriptor and connect again.
 */
#ifndef MSWITCH_RESERVATION_H
#define MSWITCH_RESERVATION_H

#include <stddef.h>
#include <stdint.h>

/* Connects to the socket that the logic's parameter `socket` names. Returns a descriptor; -1 sets errno. */
int msw_reservations_open(const char *path);

/*
 * Reserves the local ports `first` to `last` at an address of the host for a port of the bridge, all or none.
 * `protocol` is "tcp", "udp" or "sctp".
 */
int msw_reserve(int fd, const char *port, const char *protocol, const char *address, uint16_t first, uint16_t last,
                char *reason, size_t room);

/* Ends a reservation, named as it was made. */
int msw_release(int fd, const char *port, const char *protocol, const char *address, uint16_t first, uint16_t last,
                char *reason, size_t room);

/* Gets the host's MAC address, which the stack has to use. */
int msw_host_mac(int fd, uint8_t mac[6], char *reason, size_t room);

#endif
