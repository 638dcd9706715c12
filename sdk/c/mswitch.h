/*
 * Modules for mswitch: forwarding logic in C, as WebAssembly or as a shared object, from the same source.
 * docs/modules.md is the guide; this file is the interface, version 1.
 *
 *   clang --target=wasm32 -O2 -nostdlib -mbulk-memory -matomics -Isdk/c -Wl,--no-entry -o hub.wasm hub.c
 *   cc -O2 -shared -fPIC -Isdk/c -o hub.so hub.c
 *
 * A module defines msw_describe and msw_forward, and optionally msw_start, msw_timer and msw_command. All numbers are
 * little-endian; all offsets count from the start of the batch.
 */
#ifndef MSWITCH_H
#define MSWITCH_H

#include <stddef.h>
#include <stdint.h>

/* The version of this interface. */
#ifndef MSW_ABI
#define MSW_ABI 1
#endif

/* Marks functions that the switch calls (exports) or provides (imports). */
#ifdef __wasm__
#define MSW_EXPORT(name) __attribute__((export_name(#name), visibility("default")))
#define MSW_IMPORT(name) __attribute__((import_module("mswitch"), import_name(#name)))
#else
#define MSW_EXPORT(name) __attribute__((visibility("default")))
#endif

/* A packet of a batch, or a copy of one. */
struct msw_packet {
    uint32_t header;     /* Offset of the first byte. Change it to prepend or remove bytes. */
    uint32_t len;        /* Bytes of the whole packet; read only. */
    uint16_t header_len; /* Visible bytes, read only: up to 128 (192 with pending offloads), more after msw_pull. */
    uint16_t vlan;       /* The packet's VLAN, 0 for none. Change it to move the packet to another VLAN. */
    uint16_t flags;      /* MSW_CHECKSUM, MSW_SEGMENTS */
    uint16_t reserved;
};

#define MSW_CHECKSUM 1 /* The TCP or UDP checksum is completed where the packet leaves. */
#define MSW_SEGMENTS 2 /* A large packet, which is segmented where it leaves. */

/* A decision about a packet. */
struct msw_output {
    uint16_t packet; /* The packet's number. */
    uint16_t port;   /* The destination: for MSW_SEND the index of a port, for MSW_SEND_SET the number of a set. */
    uint16_t verb;
    uint16_t reserved;
};

#define MSW_SEND 0          /* To one port. */
#define MSW_FLOOD 1         /* To every port of its VLAN except the ingress port. */
#define MSW_REFLECT 2       /* Back to the ingress port. */
#define MSW_DROP 3          /* Dropped; counted as `logic`. */
#define MSW_FLOOD_UNKNOWN 4 /* As MSW_FLOOD, limited by the ingress port's storm control for unknown stations. */
#define MSW_SEND_SET 5      /* To the ports of a set that are members of its VLAN, except the ingress port. */
#define MSW_CONSUME 6       /* Ends here but is not dropped: its content continues in other packets. */

/* The ingress port of batches in msw_timer. */
#define MSW_NO_PORT 65535

/* A parameter's value. */
struct msw_value {
    uint64_t number;   /* A number; 0 or 1 for a switch, a choice's position, milliseconds, the index of a port; for MAC
                          and IPv4 addresses the bytes as in packets. MSW_NOTHING for texts and IPv6 addresses. */
    uint32_t text;     /* Offset of the value as written, */
    uint32_t text_len; /* without a terminating zero. */
};

/* The number of a parameter without a value, or of a port that the bridge does not have. */
#define MSW_NOTHING UINT64_MAX

struct msw_batch;

/* Functions that native modules call. */
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

/* Packets received together from one queue. */
struct msw_batch {
    uint32_t packets;   /* Packets received; */
    uint32_t versions;  /* and these plus the packets added since. */
    uint32_t packet_at; /* The functions below turn offsets into pointers. */
    uint32_t output_at;
    uint32_t output_room; /* Capacity of the list of outputs. */
    uint16_t ingress;     /* The index of the ingress port, MSW_NO_PORT in msw_timer; */
    uint16_t queue;       /* the number of its queue. */
    uint64_t now;         /* Monotonic time, nanoseconds. */
    uint32_t counter_at;
    uint32_t value_at;
    uint32_t state_at;
    uint32_t state_len;
    uint32_t text_at;   /* msw_command: the arguments, separated by newlines. */
    uint32_t text_len;
    uint32_t text_room;
    uint32_t worker;    /* The worker's number. */
    uint64_t tables[8]; /* Addresses of the tables: mswitch_table.h. */
    uint64_t host;
    uint32_t set_at;
    uint32_t explain;       /* Whether the batch is traced: msw_explain. */
    uint64_t ports_version; /* Changes when ports are added or removed: msw_port_of. */
    uint32_t answer_at;      /* Offset of the answer: initially text_at, over the arguments; msw_answer moves it to */
    uint32_t answer_room_at; /* this buffer of its own, text_room bytes. */
    uint32_t counter_count;  /* Counters of the description, */
    uint32_t value_count;    /* and its parameters. */
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

/* This worker's counters, in the order of the description; the switch adds those of all workers. */
static inline uint64_t *msw_counters(struct msw_batch *batch) {
    return (uint64_t *)((uint8_t *)batch + batch->counter_at);
}

/* Adds to a counter; a counter that the description does not have is a fault of the module. */
static inline void msw_count(struct msw_batch *batch, uint32_t counter, uint64_t more) {
    if (counter >= batch->counter_count) __builtin_trap();
    msw_counters(batch)[counter] += more;
}

/* The parameters' values, in the order of the description. */
static inline const struct msw_value *msw_values(struct msw_batch *batch) {
    return (const struct msw_value *)((uint8_t *)batch + batch->value_at);
}

/* This worker's state: as many bytes as the description says, initially zero. */
static inline void *msw_state(struct msw_batch *batch) {
    return (uint8_t *)batch + batch->state_at;
}

/* Text at an offset. */
static inline char *msw_text(struct msw_batch *batch, uint32_t at) {
    return (char *)batch + at;
}

/* Makes the first bytes of a packet visible, 512 at most; sets header_len and returns it. */
#ifdef __wasm__
MSW_IMPORT(msw_pull) uint32_t msw_pull(struct msw_batch *batch, uint32_t packet, uint32_t bytes);
#else
static inline uint32_t msw_pull(struct msw_batch *batch, uint32_t packet, uint32_t bytes) {
    return ((const struct msw_host *)(uintptr_t)batch->host)->pull(batch, packet, bytes);
}
#endif

/* Copies a packet; the copy has a header of its own. Returns its number, or -1 if there are too many. */
#ifdef __wasm__
MSW_IMPORT(msw_copy) int32_t msw_copy(struct msw_batch *batch, uint32_t packet);
#else
static inline int32_t msw_copy(struct msw_batch *batch, uint32_t packet) {
    return ((const struct msw_host *)(uintptr_t)batch->host)->copy(batch, packet);
}
#endif

/* Whether the bridge has a port and a client is connected to it. */
#ifdef __wasm__
MSW_IMPORT(msw_is_up) uint32_t msw_is_up(struct msw_batch *batch, uint32_t port);
#else
static inline uint32_t msw_is_up(struct msw_batch *batch, uint32_t port) {
    return ((const struct msw_host *)(uintptr_t)batch->host)->is_up(batch, port);
}
#endif

/* Makes a new packet of 14 to 65535 bytes; returns its number for outputs, or -1 if there is no room (256 in a
 * batch). Without a tag it has no VLAN: set `vlan` in its struct msw_packet. It may also go to the ingress port. */
#ifdef __wasm__
MSW_IMPORT(msw_new) int32_t msw_new(struct msw_batch *batch, const void *bytes, uint32_t len);
#else
static inline int32_t msw_new(struct msw_batch *batch, const void *bytes, uint32_t len) {
    return ((const struct msw_host *)(uintptr_t)batch->host)->make(batch, bytes, len);
}
#endif

/* Copies bytes of a packet, payload included, from offset `from` on to the module's memory; returns their number. */
#ifdef __wasm__
MSW_IMPORT(msw_read) uint32_t msw_read(struct msw_batch *batch, uint32_t packet, uint32_t from, void *to, uint32_t len);
#else
static inline uint32_t msw_read(struct msw_batch *batch, uint32_t packet, uint32_t from, void *to, uint32_t len) {
    return ((const struct msw_host *)(uintptr_t)batch->host)->read(batch, packet, from, to, len);
}
#endif

/* Keeps a packet in its current state beyond this batch. Returns a number below the description's "retain", or -1 if
 * this worker keeps that many already. A kept packet needs no output. */
#ifdef __wasm__
MSW_IMPORT(msw_retain) int32_t msw_retain(struct msw_batch *batch, uint32_t packet);
#else
static inline int32_t msw_retain(struct msw_batch *batch, uint32_t packet) {
    return ((const struct msw_host *)(uintptr_t)batch->host)->retain(batch, packet);
}
#endif

/* Adds a kept packet to the batch, as msw_new does, and no longer keeps it; returns its number for outputs. On -1 it
 * is still kept, if it was. */
#ifdef __wasm__
MSW_IMPORT(msw_release) int32_t msw_release(struct msw_batch *batch, uint32_t kept);
#else
static inline int32_t msw_release(struct msw_batch *batch, uint32_t kept) {
    return ((const struct msw_host *)(uintptr_t)batch->host)->release(batch, kept);
}
#endif

/* Writes a line to the daemon's log. All modules together may write twenty lines a second. */
#ifdef __wasm__
MSW_IMPORT(msw_log) void msw_log(struct msw_batch *batch, const char *text, uint32_t len);
#else
static inline void msw_log(struct msw_batch *batch, const char *text, uint32_t len) {
    ((const struct msw_host *)(uintptr_t)batch->host)->log(batch, text, len);
}
#endif

/* Adds a reason to `mswitch trace`: a text in which the value replaces {}. Use msw_explain. */
#ifdef __wasm__
MSW_IMPORT(msw_remark) void msw_remark(struct msw_batch *batch, uint32_t packet, const char *text, uint32_t len, uint32_t kind, uint64_t value);
#else
static inline void msw_remark(struct msw_batch *batch, uint32_t packet, const char *text, uint32_t len, uint32_t kind, uint64_t value) {
    ((const struct msw_host *)(uintptr_t)batch->host)->remark(batch, packet, text, len, kind, value);
}
#endif

/* Returns the index of the port with this name; -1: the bridge has no such port; -2: the ports are changing, ask again.
 * Use msw_port_of. */
#ifdef __wasm__
MSW_IMPORT(msw_port_index) int32_t msw_port_index(struct msw_batch *batch, const char *name, uint32_t len);
#else
static inline int32_t msw_port_index(struct msw_batch *batch, const char *name, uint32_t len) {
    return ((const struct msw_host *)(uintptr_t)batch->host)->port_index(batch, name, len);
}
#endif

/* A port by name. Its index is looked up again when ports are added or removed. Each worker needs its own, in
 * msw_state. */
struct msw_port_name {
    uint64_t version; /* Version of the ports at the last lookup. */
    int32_t index;
    uint32_t len;
    char name[64];
};

/* Sets the name; returns 0 if it is empty or too long. */
static inline int msw_port_name(struct msw_port_name *port, const char *name, size_t len) {
    if (len == 0 || len > sizeof port->name) return 0;
    port->version = 0, port->index = -1, port->len = (uint32_t)len;
    __builtin_memmove(port->name, name, len);
    return 1;
}

/* Returns the port's index; -1 while the bridge has no such port. */
static inline int32_t msw_port_of(struct msw_batch *batch, struct msw_port_name *port) {
    if (port->version == batch->ports_version) return port->index;
    int32_t index = msw_port_index(batch, port->name, port->len);
    if (index != -2) port->index = index, port->version = batch->ports_version;
    return port->index;
}

/* Kinds of values. */
#define MSW_NUMBER 0
#define MSW_PORT 1 /* The index of a port; the trace shows its name. */
#define MSW_MAC 2  /* The bytes as in packets, the first one lowest. */
#define MSW_IPV4 3 /* As MSW_MAC. */

static inline uint32_t msw_length(const char *text) {
    uint32_t length = 0;
    while (text[length]) length++;
    return length;
}

/* Adds a reason if the packet is traced; otherwise it costs a comparison. The value replaces the first {} (`port 77`
 * for a port that the bridge does not have); without {} pass MSW_NUMBER, 0. Up to 120 bytes before the value and 60
 * bytes after it are shown. */
static inline void msw_explain(struct msw_batch *batch, uint32_t packet, const char *text, uint32_t kind, uint64_t value) {
    if (batch->explain) msw_remark(batch, packet, text, msw_length(text), kind, value);
}

/* Sets of ports, for MSW_SEND_SET: 64 of them, which keep their ports from batch to batch. */
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

/* Big-endian numbers in packets, at any alignment. */
static inline uint16_t msw_be16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }
static inline uint32_t msw_be32(const uint8_t *at) { return (uint32_t)msw_be16(at) << 16 | msw_be16(at + 2); }
static inline void msw_put_be16(uint8_t *at, uint16_t number) { at[0] = (uint8_t)(number >> 8), at[1] = (uint8_t)number; }
static inline void msw_put_be32(uint8_t *at, uint32_t number) { msw_put_be16(at, (uint16_t)(number >> 16)), msw_put_be16(at + 2, (uint16_t)number); }

/* Copies bytes; WebAssembly modules have no C library, and compilers turn this into instructions. */
static inline void msw_move(void *to, const void *from, size_t bytes) { __builtin_memmove(to, from, bytes); }

/* Whether two ranges of bytes are equal. */
static inline int msw_same(const void *a, const void *b, size_t bytes) {
    const uint8_t *one = (const uint8_t *)a, *other = (const uint8_t *)b;
    for (size_t i = 0; i < bytes; i++)
        if (one[i] != other[i]) return 0;
    return 1;
}

/* The version of the interface, for the switch. */
MSW_EXPORT(msw_abi) uint32_t msw_abi(void);
uint32_t msw_abi(void) { return MSW_ABI; }

/* Functions that a module defines. */

/* Returns the description: JSON, see docs/modules.md. */
MSW_EXPORT(msw_describe) const char *msw_describe(void);
/* Called for each worker before its first batch. Returns 0 to start; any other value refuses. A negative value is the
 * length of the reason, which is printed as a command's answer is: msw_answer. */
MSW_EXPORT(msw_start) int32_t msw_start(struct msw_batch *batch);
/* Forwards a batch: writes outputs and returns their number. Packets without an output are dropped. */
MSW_EXPORT(msw_forward) uint32_t msw_forward(struct msw_batch *batch);
/* Called for each worker at the interval of the description's "timer", with an empty batch: writes outputs for
 * packets that it makes or releases, and returns their number. */
MSW_EXPORT(msw_timer) uint32_t msw_timer(struct msw_batch *batch);
/* Runs a command, by its position in the description. Returns the length of its answer, negative for an error. */
MSW_EXPORT(msw_command) int32_t msw_command(struct msw_batch *batch, uint32_t number);

#endif
