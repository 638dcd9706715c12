/*
 * Modules for mswitch: forwarding logic in C, as WebAssembly or as a shared object, from the same source. docs/modules.md tells
 * how; this file is the interface, version 1.
 *
 *   clang --target=wasm32 -O2 -nostdlib -mbulk-memory -matomics -Isdk/c -Wl,--no-entry -o hub.wasm hub.c
 *   cc -O2 -shared -fPIC -Isdk/c -o hub.so hub.c
 *
 * A module defines msw_describe and msw_forward, and msw_start, msw_timer and msw_command if it wants to. All numbers are little-endian; all
 * offsets count from the start of the batch.
 */
#ifndef MSWITCH_H
#define MSWITCH_H

#include <stddef.h>
#include <stdint.h>

/* The version of this interface. */
#ifndef MSW_ABI
#define MSW_ABI 1
#endif

/* Put in front of the functions that the switch calls. */
#ifdef __wasm__
#define MSW_EXPORT(name) __attribute__((export_name(#name), visibility("default")))
#define MSW_IMPORT(name) __attribute__((import_module("mswitch"), import_name(#name)))
#else
#define MSW_EXPORT(name) __attribute__((visibility("default")))
#endif

/* A packet of a batch, or a copy of one. */
struct msw_packet {
    uint32_t header;     /* Offset of its first byte. Move it to make the header longer at its front, or shorter. */
    uint32_t len;        /* Bytes of the whole packet. */
    uint16_t header_len; /* Bytes that can be seen: up to 128 (192 with work left to do), more after msw_pull. */
    uint16_t vlan;       /* The VLAN that it belongs to, 0 for none. Change it to move the packet to another one. */
    uint16_t flags;      /* MSW_CHECKSUM, MSW_SEGMENTS */
    uint16_t reserved;
};

#define MSW_CHECKSUM 1 /* Its TCP or UDP checksum is completed where it leaves. */
#define MSW_SEGMENTS 2 /* It is a large packet, which is cut where it leaves. */

/* What is to become of a packet. */
struct msw_output {
    uint16_t packet; /* Its number. */
    uint16_t port;   /* Where to: for MSW_SEND the index of a port, for MSW_SEND_SET the number of a set. */
    uint16_t verb;
    uint16_t reserved;
};

#define MSW_SEND 0          /* To one port. */
#define MSW_FLOOD 1         /* To every port of its VLAN but the one it came from. */
#define MSW_REFLECT 2       /* Back to where it came from. */
#define MSW_DROP 3          /* Nowhere; counted as `logic`. */
#define MSW_FLOOD_UNKNOWN 4 /* As MSW_FLOOD; held to the rate that the port may send to stations nobody knows. */
#define MSW_SEND_SET 5      /* To the ports of a set, as far as they are of its VLAN, but not to the one it came from. */
#define MSW_CONSUME 6       /* Nowhere from here, and that is no loss: what was in it went on in others. */

/* Where batches come from in msw_timer. */
#define MSW_NO_PORT 65535

/* A parameter's value. */
struct msw_value {
    uint64_t number;   /* A number; 0 or 1 for a switch, a choice's place, milliseconds, the index of a port; of a MAC or IPv4 address,
                          the bytes as they are in packets. MSW_NOTHING for texts and IPv6 addresses. */
    uint32_t text;     /* Offset of the value as it was written; */
    uint32_t text_len; /* not ended by a zero. */
};

/* The number of a parameter that has no value, or names a port that is not there. */
#define MSW_NOTHING UINT64_MAX

struct msw_batch;

/* What native modules call. */
struct msw_host {
    uint32_t (*pull)(struct msw_batch *, uint32_t packet, uint32_t bytes);
    int32_t (*copy)(struct msw_batch *, uint32_t packet);
    uint32_t (*is_up)(struct msw_batch *, uint32_t port);
    int32_t (*make)(struct msw_batch *, const void *bytes, uint32_t len);
    uint32_t (*read)(struct msw_batch *, uint32_t packet, uint32_t from, void *to, uint32_t len);
    int32_t (*retain)(struct msw_batch *, uint32_t packet);
    int32_t (*release)(struct msw_batch *, uint32_t kept);
    void (*remark)(struct msw_batch *, uint32_t packet, const char *text, uint32_t len, uint32_t kind, uint64_t value);
    void (*log)(struct msw_batch *, const char *text, uint32_t len);
    int32_t (*port_index)(struct msw_batch *, const char *name, uint32_t len);
};

/* The packets that came from one queue in one go. */
struct msw_batch {
    uint32_t packets;   /* How many were received, */
    uint32_t versions;  /* and with those that were added. */
    uint32_t packet_at; /* Use the functions below for what has an offset. */
    uint32_t output_at;
    uint32_t output_room; /* How many outputs fit. */
    uint16_t ingress;     /* The index of the port that they came from, MSW_NO_PORT in msw_timer, */
    uint16_t queue;       /* and which of its queues. */
    uint64_t now;         /* Nanoseconds of a clock that only goes forward. */
    uint32_t counter_at;
    uint32_t value_at;
    uint32_t state_at;
    uint32_t state_len;
    uint32_t text_at;   /* msw_command: its arguments, with a newline between them; its answer goes to the same place. */
    uint32_t text_len;
    uint32_t text_room;
    uint32_t worker;    /* Which worker this is. */
    uint64_t tables[8]; /* Where the tables are: mswitch_table.h. */
    uint64_t host;
    uint32_t set_at;
    uint32_t explain;       /* Somebody wants to know why packets go where they go: msw_explain. */
    uint64_t ports_version; /* Changes whenever ports come or go: msw_port_of. */
};

static inline struct msw_packet *msw_packets(struct msw_batch *batch) {
    return (struct msw_packet *)((uint8_t *)batch + batch->packet_at);
}

static inline struct msw_output *msw_outputs(struct msw_batch *batch) {
    return (struct msw_output *)((uint8_t *)batch + batch->output_at);
}

/* The first byte of a packet. */
static inline uint8_t *msw_header(struct msw_batch *batch, const struct msw_packet *packet) {
    return (uint8_t *)batch + packet->header;
}

/* The counters that the description names, in its order, for this worker; the switch adds them up. */
static inline uint64_t *msw_counters(struct msw_batch *batch) {
    return (uint64_t *)((uint8_t *)batch + batch->counter_at);
}

/* The values of the parameters that the description names, in its order. */
static inline const struct msw_value *msw_values(struct msw_batch *batch) {
    return (const struct msw_value *)((uint8_t *)batch + batch->value_at);
}

/* What this worker remembers for itself: as many bytes as the description says, zeroes at first. */
static inline void *msw_state(struct msw_batch *batch) {
    return (uint8_t *)batch + batch->state_at;
}

/* Text at an offset. */
static inline char *msw_text(struct msw_batch *batch, uint32_t at) {
    return (char *)batch + at;
}

/* Brings the first bytes of a packet (512 at most) into its header; sets header_len, and returns it. */
#ifdef __wasm__
MSW_IMPORT(msw_pull) uint32_t msw_pull(struct msw_batch *batch, uint32_t packet, uint32_t bytes);
#else
static inline uint32_t msw_pull(struct msw_batch *batch, uint32_t packet, uint32_t bytes) {
    return ((const struct msw_host *)(uintptr_t)batch->host)->pull(batch, packet, bytes);
}
#endif

/* Makes a copy of a packet, with a header of its own; returns its number, or -1 if there are too many. */
#ifdef __wasm__
MSW_IMPORT(msw_copy) int32_t msw_copy(struct msw_batch *batch, uint32_t packet);
#else
static inline int32_t msw_copy(struct msw_batch *batch, uint32_t packet) {
    return ((const struct msw_host *)(uintptr_t)batch->host)->copy(batch, packet);
}
#endif

/* Whether a port is there and has somebody connected. */
#ifdef __wasm__
MSW_IMPORT(msw_is_up) uint32_t msw_is_up(struct msw_batch *batch, uint32_t port);
#else
static inline uint32_t msw_is_up(struct msw_batch *batch, uint32_t port) {
    return ((const struct msw_host *)(uintptr_t)batch->host)->is_up(batch, port);
}
#endif

/* Makes a packet that nobody has sent, 14 to 65535 bytes; returns its number for outputs, or -1 where there is no room for more (256 in a
 * batch). It has no VLAN unless it has a tag: set that in its struct msw_packet. It may also go where the batch came from. */
#ifdef __wasm__
MSW_IMPORT(msw_new) int32_t msw_new(struct msw_batch *batch, const void *bytes, uint32_t len);
#else
static inline int32_t msw_new(struct msw_batch *batch, const void *bytes, uint32_t len) {
    return ((const struct msw_host *)(uintptr_t)batch->host)->make(batch, bytes, len);
}
#endif

/* Copies bytes of a packet, payload and all, from one of them on, to memory of the module's own; returns how many. For those who need more
 * than the header. */
#ifdef __wasm__
MSW_IMPORT(msw_read) uint32_t msw_read(struct msw_batch *batch, uint32_t packet, uint32_t from, void *to, uint32_t len);
#else
static inline uint32_t msw_read(struct msw_batch *batch, uint32_t packet, uint32_t from, void *to, uint32_t len) {
    return ((const struct msw_host *)(uintptr_t)batch->host)->read(batch, packet, from, to, len);
}
#endif

/* Keeps a packet beyond this batch, as it is now, in memory of the switch; returns a number below the description's "retain", or -1 where
 * this worker keeps that many already. The packet needs no output then. */
#ifdef __wasm__
MSW_IMPORT(msw_retain) int32_t msw_retain(struct msw_batch *batch, uint32_t packet);
#else
static inline int32_t msw_retain(struct msw_batch *batch, uint32_t packet) {
    return ((const struct msw_host *)(uintptr_t)batch->host)->retain(batch, packet);
}
#endif

/* Makes a packet of one that this worker keeps, as msw_new does, and keeps it no longer; returns its number for outputs, or -1:
 * then it is still kept, if it was. */
#ifdef __wasm__
MSW_IMPORT(msw_release) int32_t msw_release(struct msw_batch *batch, uint32_t kept);
#else
static inline int32_t msw_release(struct msw_batch *batch, uint32_t kept) {
    return ((const struct msw_host *)(uintptr_t)batch->host)->release(batch, kept);
}
#endif

/* A line in the switch's log. All modules together have some twenty in a second. */
#ifdef __wasm__
MSW_IMPORT(msw_log) void msw_log(struct msw_batch *batch, const char *text, uint32_t len);
#else
static inline void msw_log(struct msw_batch *batch, const char *text, uint32_t len) {
    ((const struct msw_host *)(uintptr_t)batch->host)->log(batch, text, len);
}
#endif

/* Says why something becomes of a packet, for `mswitch trace`: a text with {} where a value is to be. Use msw_explain. */
#ifdef __wasm__
MSW_IMPORT(msw_remark) void msw_remark(struct msw_batch *batch, uint32_t packet, const char *text, uint32_t len, uint32_t kind, uint64_t value);
#else
static inline void msw_remark(struct msw_batch *batch, uint32_t packet, const char *text, uint32_t len, uint32_t kind, uint64_t value) {
    ((const struct msw_host *)(uintptr_t)batch->host)->remark(batch, packet, text, len, kind, value);
}
#endif

/* The index of the port with this name; -1: the bridge has none; -2: the ports are changing at the moment, ask again. Use msw_port_of. */
#ifdef __wasm__
MSW_IMPORT(msw_port_index) int32_t msw_port_index(struct msw_batch *batch, const char *name, uint32_t len);
#else
static inline int32_t msw_port_index(struct msw_batch *batch, const char *name, uint32_t len) {
    return ((const struct msw_host *)(uintptr_t)batch->host)->port_index(batch, name, len);
}
#endif

/* A port by name, whose index is looked up again whenever ports come or go. Each worker needs its own: in msw_state. */
struct msw_port_name {
    uint64_t version; /* That of the ports when the index was looked up. */
    int32_t index;
    uint32_t len;
    char name[64];
};

/* Sets the name; returns 0 if no port can have it. */
static inline int msw_port_name(struct msw_port_name *port, const char *name, size_t len) {
    if (len == 0 || len > sizeof port->name) return 0;
    port->version = 0, port->index = -1, port->len = (uint32_t)len;
    __builtin_memmove(port->name, name, len);
    return 1;
}

/* The port's index; -1 while the bridge has no such port. */
static inline int32_t msw_port_of(struct msw_batch *batch, struct msw_port_name *port) {
    if (port->version == batch->ports_version) return port->index;
    int32_t index = msw_port_index(batch, port->name, port->len);
    if (index != -2) port->index = index, port->version = batch->ports_version;
    return port->index;
}

/* What the value is. */
#define MSW_NUMBER 0
#define MSW_PORT 1 /* The index of a port; people see its name. */
#define MSW_MAC 2  /* Its bytes as they are in packets, the first one lowest. */
#define MSW_IPV4 3 /* The same. */

static inline uint32_t msw_length(const char *text) {
    uint32_t length = 0;
    while (text[length]) length++;
    return length;
}

/* The same where somebody wants to know, and almost for nothing where nobody does. The first {} is where the value goes (a port that is not there
 * as `port 77`); without one pass MSW_NUMBER, 0. Up to 120 bytes before it and 60 behind it are shown. */
static inline void msw_explain(struct msw_batch *batch, uint32_t packet, const char *text, uint32_t kind, uint64_t value) {
    if (batch->explain) msw_remark(batch, packet, text, msw_length(text), kind, value);
}

/* Sets of ports, for MSW_SEND_SET: 64 of them, which stay from batch to batch. */
static inline uint64_t *msw_set(struct msw_batch *batch, uint32_t set) {
    return (uint64_t *)((uint8_t *)batch + batch->set_at) + (set & 63) * 64;
}
static inline void msw_set_clear(struct msw_batch *batch, uint32_t set) { __builtin_memset(msw_set(batch, set), 0, 512); }
static inline void msw_set_add(struct msw_batch *batch, uint32_t set, uint32_t port) {
    msw_set(batch, set)[(port & 4095) / 64] |= (uint64_t)1 << port % 64;
}
static inline int msw_set_has(struct msw_batch *batch, uint32_t set, uint32_t port) {
    return msw_set(batch, set)[(port & 4095) / 64] >> port % 64 & 1;
}

/* Numbers in packets: the most significant byte first, anywhere. */
static inline uint16_t msw_be16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }
static inline uint32_t msw_be32(const uint8_t *at) { return (uint32_t)msw_be16(at) << 16 | msw_be16(at + 2); }
static inline void msw_put_be16(uint8_t *at, uint16_t number) { at[0] = (uint8_t)(number >> 8), at[1] = (uint8_t)number; }
static inline void msw_put_be32(uint8_t *at, uint32_t number) { msw_put_be16(at, (uint16_t)(number >> 16)), msw_put_be16(at + 2, (uint16_t)number); }

/* There is no C library in a WebAssembly module: these are what a compiler expects. */
static inline void msw_move(void *to, const void *from, size_t bytes) { __builtin_memmove(to, from, bytes); }

/* Whether so many bytes are the same. */
static inline int msw_same(const void *a, const void *b, size_t bytes) {
    const uint8_t *one = (const uint8_t *)a, *other = (const uint8_t *)b;
    for (size_t i = 0; i < bytes; i++)
        if (one[i] != other[i]) return 0;
    return 1;
}

/* The rest of the interface, for the switch alone. */
MSW_EXPORT(msw_abi) uint32_t msw_abi(void);
uint32_t msw_abi(void) { return MSW_ABI; }

/* What a module defines. */

/* Its description: JSON, see docs/modules.md. */
MSW_EXPORT(msw_describe) const char *msw_describe(void);
/* Called for each worker before its first batch; returns 0, or anything else to be refused: less than 0, the reason has so many bytes
 * and lies where a command's answer does. */
MSW_EXPORT(msw_start) int32_t msw_start(struct msw_batch *batch);
/* Decides for all packets of a batch: writes outputs, and returns how many. Packets without an output are dropped. */
MSW_EXPORT(msw_forward) uint32_t msw_forward(struct msw_batch *batch);
/* Called for each worker about as often as the description's "timer" says, with a batch of no packets: writes outputs for what it makes
 * or releases, and returns how many. */
MSW_EXPORT(msw_timer) uint32_t msw_timer(struct msw_batch *batch);
/* Carries out a command, by its place in the description. Returns the length of its answer, negative if it failed. */
MSW_EXPORT(msw_command) int32_t msw_command(struct msw_batch *batch, uint32_t number);

#endif
