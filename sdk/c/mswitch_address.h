/*
 * Parsing of parameters and arguments, and printing of answers, for modules for mswitch: numbers, MAC addresses, IPv4
 * and IPv6 addresses and prefixes.
 *
 * A parser reads a whole text and returns whether it has the expected form; only then it sets the result.
 */
#ifndef MSWITCH_ADDRESS_H
#define MSWITCH_ADDRESS_H

#include "mswitch.h"

/* A range of text, without a terminating zero. */
struct msw_text {
    const char *at, *end;
};

/* An IPv4 or IPv6 prefix, or an address, which is a prefix of full length. Bits after the prefix are zero. */
struct msw_prefix {
    uint8_t address[16]; /* The bytes as in packets; IPv4 uses the first four. */
    uint8_t bytes;       /* 4 or 16. */
    uint8_t length;      /* Bits, up to 8 * bytes. */
};

static inline struct msw_text msw_text_of(const char *text) { return (struct msw_text){text, text + msw_length(text)}; }

/* A parameter as written, by its position in the description. */
static inline struct msw_text msw_param(struct msw_batch *batch, uint32_t param) {
    const struct msw_value *value = &msw_values(batch)[param];
    const char *at = msw_text(batch, value->text);
    return (struct msw_text){at, at + value->text_len};
}

/* The arguments of a command; msw_next separates them at '\n'. */
static inline struct msw_text msw_arguments(struct msw_batch *batch) {
    const char *at = msw_text(batch, batch->text_at);
    return (struct msw_text){at, at + batch->text_len};
}

/* Takes the text before the next separator, or the rest, from the front of `from`; returns 0 if `from` is empty. */
static inline int msw_next(struct msw_text *from, char separator, struct msw_text *part) {
    if (from->at >= from->end) return 0;
    *part = (struct msw_text){from->at, from->at};
    while (part->end < from->end && *part->end != separator) part->end++;
    from->at = part->end < from->end ? part->end + 1 : part->end;
    return 1;
}

static inline int msw_is(struct msw_text text, const char *word) {
    uint32_t length = msw_length(word);
    return (size_t)(text.end - text.at) == length && msw_same(text.at, word, length);
}

/* The value of a hexadecimal digit; 16 for anything else. */
static inline uint32_t msw_digit(char c) {
    if (c >= '0' && c <= '9') return (uint32_t)(c - '0');
    char lower = (char)(c | 32);
    return lower >= 'a' && lower <= 'f' ? (uint32_t)(lower - 'a') + 10 : 16;
}

/* A 64-bit number, decimal or hexadecimal with 0x. */
static inline int msw_parse_number(struct msw_text text, uint64_t *number) {
    uint64_t base = 10, value = 0;
    if (text.end - text.at > 2 && text.at[0] == '0' && (text.at[1] | 32) == 'x') base = 16, text.at += 2;
    if (text.at >= text.end) return 0;
    for (; text.at < text.end; text.at++) {
        uint64_t digit = msw_digit(*text.at);
        if (digit >= base || value > (UINT64_MAX - digit) / base) return 0;
        value = value * base + digit;
    }
    *number = value;
    return 1;
}

/* A MAC address, such as 02:00:00:00:00:01 or 02-00-00-00-00-01. */
static inline int msw_parse_mac(struct msw_text text, uint8_t mac[6]) {
    uint8_t bytes[6];
    if (text.end - text.at != 17) return 0;
    for (uint32_t i = 0; i < 6; i++, text.at += 3) {
        uint32_t high = msw_digit(text.at[0]), low = msw_digit(text.at[1]);
        if (high > 15 || low > 15 || (i < 5 && text.at[2] != ':' && text.at[2] != '-')) return 0;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    msw_move(mac, bytes, 6);
    return 1;
}

/* An IPv4 address, such as 192.0.2.1. */
static inline int msw_parse_ipv4(struct msw_text text, uint8_t address[4]) {
    uint8_t bytes[4];
    struct msw_text part;
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t number;
        int last = i == 3;
        if (last ? text.at >= text.end : !msw_next(&text, '.', &part)) return 0;
        if (last) part = text;
        if (part.end - part.at > 3 || (part.end - part.at > 1 && *part.at == '0')) return 0;
        if (!msw_parse_number(part, &number) || number > 255) return 0;
        bytes[i] = (uint8_t)number;
    }
    msw_move(address, bytes, 4);
    return 1;
}

/* An IPv6 address (RFC 4291, section 2.2), such as 2001:db8::1. */
static inline int msw_parse_ipv6(struct msw_text text, uint8_t address[16]) {
    uint8_t bytes[16] = {0};
    uint32_t at = 0, gap = 16; /* gap: the position of `::`. */
    if (text.end - text.at >= 2 && text.at[0] == ':' && text.at[1] == ':') gap = 0, text.at += 2;
    while (text.at < text.end) {
        const char *group = text.at;
        uint32_t value = 0;
        if (at == 16) return 0;
        while (text.at < text.end && text.at - group < 4 && msw_digit(*text.at) < 16)
            value = value << 4 | msw_digit(*text.at++);
        if (text.at == group) return 0;
        if (text.at < text.end && *text.at == '.') {
            if (at > 12 || !msw_parse_ipv4((struct msw_text){group, text.end}, bytes + at)) return 0;
            at += 4;
            break;
        }
        msw_put_be16(bytes + at, (uint16_t)value);
        at += 2;
        if (text.at == text.end) break;
        if (*text.at++ != ':' || text.at == text.end) return 0;
        if (*text.at != ':') continue;
        if (gap != 16) return 0;
        gap = at, text.at++;
    }
    if ((at == 16) != (gap == 16)) return 0;
    if (gap != 16) {
        msw_move(bytes + 16 - (at - gap), bytes + gap, at - gap);
        __builtin_memset(bytes + gap, 0, 16 - at);
    }
    msw_move(address, bytes, 16);
    return 1;
}

/* Clears the bits after a prefix. */
static inline void msw_mask(uint8_t *address, uint32_t bytes, uint32_t length) {
    for (uint32_t i = 0; i < bytes; i++) {
        uint32_t kept = length > i * 8 ? length - i * 8 : 0;
        if (kept < 8) address[i] &= (uint8_t)(0xff00 >> kept);
    }
}

/* A prefix such as 192.0.2.0/24 or 2001:db8::/32, or an address. */
static inline int msw_parse_prefix(struct msw_text text, struct msw_prefix *prefix) {
    struct msw_text address;
    struct msw_prefix found = {.bytes = 4};
    uint64_t length;
    if (!msw_next(&text, '/', &address)) return 0;
    int whole = address.end == text.end;
    if (!msw_parse_ipv4(address, found.address)) {
        found.bytes = 16;
        if (!msw_parse_ipv6(address, found.address)) return 0;
    }
    length = found.bytes * 8u;
    if (!whole && (text.end - text.at > 3 || !msw_parse_number(text, &length) || length > found.bytes * 8u)) return 0;
    if (!whole && text.end - text.at > 1 && msw_digit(text.at[1]) > 9) return 0; /* 0x */
    found.length = (uint8_t)length;
    msw_mask(found.address, found.bytes, found.length);
    *prefix = found;
    return 1;
}

/* Whether a prefix contains an address, as in packets. */
static inline int msw_prefix_has(const struct msw_prefix *prefix, const uint8_t *address) {
    uint8_t masked[16] = {0};
    msw_move(masked, address, prefix->bytes);
    msw_mask(masked, prefix->bytes, prefix->length);
    return msw_same(masked, prefix->address, prefix->bytes);
}

/* A text buffer. Text beyond its end is omitted and counted. */
struct msw_printer {
    char *begin, *at, *end;
    uint32_t omitted;
};

static inline struct msw_printer msw_printer_of(char *room, uint32_t bytes) {
    return (struct msw_printer){room, room, room + bytes, 0};
}

/* A printer for a command's answer, which has a buffer of its own: the arguments stay as they are. */
static inline struct msw_printer msw_answer(struct msw_batch *batch) {
    if (batch->answer_room_at) batch->answer_at = batch->answer_room_at;
    return msw_printer_of(msw_text(batch, batch->answer_at ? batch->answer_at : batch->text_at), batch->text_room);
}

/* The return value of a command that succeeded: the length of its whole answer. The switch cuts an answer that does not
 * fit, and says so at its end. */
static inline int32_t msw_done(const struct msw_printer *to) {
    uint64_t whole = (uint64_t)(to->at - to->begin) + to->omitted;
    return whole > INT32_MAX ? INT32_MAX : (int32_t)whole;
}
static inline void msw_print_char(struct msw_printer *to, char c) {
    if (to->at < to->end) *to->at++ = c;
    else to->omitted += to->omitted < UINT32_MAX;
}

static inline void msw_print_text(struct msw_printer *to, struct msw_text text) {
    while (text.at < text.end) msw_print_char(to, *text.at++);
}

static inline void msw_print(struct msw_printer *to, const char *text) { msw_print_text(to, msw_text_of(text)); }

/* The return value of a command that has failed, with a standard text if nothing was printed. */
static inline int32_t msw_failed(const struct msw_printer *to) {
    struct msw_printer text = *to;
    if (text.at == text.begin) msw_print(&text, "gave no reason");
    return -msw_done(&text);
}

static inline void msw_print_base(struct msw_printer *to, uint64_t number, uint32_t base, uint32_t digits) {
    char text[20];
    uint32_t at = sizeof text;
    do text[--at] = "0123456789abcdef"[number % base], number /= base;
    while (number || sizeof text - at < digits);
    msw_print_text(to, (struct msw_text){text + at, text + sizeof text});
}

static inline void msw_print_number(struct msw_printer *to, uint64_t number) { msw_print_base(to, number, 10, 1); }

static inline void msw_print_mac(struct msw_printer *to, const uint8_t mac[6]) {
    for (uint32_t i = 0; i < 6; i++) {
        if (i) msw_print_char(to, ':');
        msw_print_base(to, mac[i], 16, 2);
    }
}

static inline void msw_print_ipv4(struct msw_printer *to, const uint8_t address[4]) {
    for (uint32_t i = 0; i < 4; i++) {
        if (i) msw_print_char(to, '.');
        msw_print_number(to, address[i]);
    }
}

/* Prints as RFC 5952 recommends: `::` replaces the longest run of zeroes, the first of equally long ones. */
static inline void msw_print_ipv6(struct msw_printer *to, const uint8_t address[16]) {
    static const uint8_t mapped[12] = {[10] = 0xff, 0xff}; /* ::ffff:192.0.2.1, an IPv4-mapped address */
    uint32_t from = 8, longest = 1;
    if (msw_same(address, mapped, 12)) {
        msw_print(to, "::ffff:");
        msw_print_ipv4(to, address + 12);
        return;
    }
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t run = 0;
        while (i + run < 8 && msw_be16(address + (i + run) * 2) == 0) run++;
        if (run > longest) from = i, longest = run;
    }
    for (uint32_t i = 0; i < 8; i++) {
        if (i == from) {
            msw_print(to, "::");
            i += longest - 1;
            continue;
        }
        if (i && i != from + longest) msw_print_char(to, ':');
        msw_print_base(to, msw_be16(address + i * 2), 16, 1);
    }
}

static inline void msw_print_prefix(struct msw_printer *to, const struct msw_prefix *prefix) {
    if (prefix->bytes == 4) msw_print_ipv4(to, prefix->address);
    else msw_print_ipv6(to, prefix->address);
    if (prefix->length == prefix->bytes * 8) return;
    msw_print_char(to, '/');
    msw_print_number(to, prefix->length);
}

#endif
