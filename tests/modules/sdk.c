/* The SDK's helpers as a program: each line of standard input has a helper's name and its arguments, each line of
 * output its result. */
#include <stdio.h>
#include <string.h>

#include "mswitch_address.h"
#include "mswitch_checksum.h"
#include "mswitch_lpm.h"
#include "mswitch_packet.h"

static uint32_t bytes_of(struct msw_text hex, uint8_t *bytes) {
    uint32_t len = 0;
    for (; hex.at + 1 < hex.end; hex.at += 2) bytes[len++] = (uint8_t)(msw_digit(hex.at[0]) << 4 | msw_digit(hex.at[1]));
    return len;
}

/* Tables as the switch creates them. */
static struct {
    struct msw_table table;
    uint64_t slots[256][6];
} memory4 = {.table = {.seed = 7, .mask = 255, .slot_len = 24, .key_words = 1, .value_words = 1}},
  memory6 = {.table = {.seed = 7, .mask = 255, .slot_len = 40, .key_words = 3, .value_words = 1}};

/* A batch with one packet, and room for two outputs. */
static struct {
    struct msw_batch batch;
    struct msw_packet packet;
    struct msw_output outputs[2];
    uint8_t room[64], frame[512];
} one = {.batch = {.output_room = 2}};

static void numbers(struct msw_printer *out, const uint64_t *number, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (i) msw_print_char(out, ' ');
        msw_print_number(out, number[i]);
    }
}

/* The length as it changes, the first bytes, and the outputs. */
static void one_packet(struct msw_printer *out, const uint8_t *frame, uint32_t len) {
    memcpy(one.frame, frame, len);
    one.batch.output_at = (uint32_t)((uint8_t *)one.outputs - (uint8_t *)&one.batch);
    one.packet = (struct msw_packet){.header = (uint32_t)(one.frame - (uint8_t *)&one.batch), .len = len, .header_len = (uint16_t)len};
    struct msw_list list = msw_list(&one.batch);
    memset(one.room, 0xff, sizeof one.room);
    uint8_t *grown = msw_grow(&one.batch, &one.packet, 4);
    uint64_t first = grown == one.frame - 4 && !msw_be32(grown) && one.packet.len == len + 4;
    uint8_t *shrunk = msw_shrink(&one.batch, &one.packet, 6);
    uint64_t then = shrunk == one.frame + 2 && one.packet.header_len == len - 2;
    msw_send(&list, 0, 7), msw_flood(&list, 1), msw_drop(&list, 0);
    uint64_t shown[] = {first, then, list.count, one.outputs[0].port, one.outputs[0].verb, one.outputs[1].packet, one.outputs[1].verb};
    numbers(out, shown, 7);
}

static void answer(struct msw_text line, struct msw_printer *out) {
    struct msw_text kind, first = {0}, second = {0};
    struct msw_prefix prefix;
    uint8_t bytes[512], more[512];
    uint64_t number;
    msw_next(&line, ' ', &kind);
    msw_next(&line, ' ', &first);
    second = line;
    if (msw_is(kind, "number") && msw_parse_number(first, &number)) msw_print_number(out, number);
    else if (msw_is(kind, "mac") && msw_parse_mac(first, bytes)) msw_print_mac(out, bytes);
    else if (msw_is(kind, "prefix") && msw_parse_prefix(first, &prefix)) msw_print_prefix(out, &prefix);
    else if (msw_is(kind, "checksum")) msw_print_number(out, msw_checksum(bytes, bytes_of(first, bytes)));
    else if (msw_is(kind, "has") && msw_parse_prefix(first, &prefix)) {
        bytes_of(second, bytes);
        msw_print_number(out, (uint64_t)msw_prefix_has(&prefix, bytes));
    } else if (msw_is(kind, "replace")) { /* HEADER OFFSET BYTES */
        struct msw_text offset;
        uint32_t len = bytes_of(first, bytes);
        msw_next(&second, ' ', &offset);
        msw_parse_number(offset, &number);
        msw_ipv4_replace(bytes, (uint32_t)number, more, bytes_of(second, more));
        for (uint32_t i = 0; i < len; i++) msw_print_base(out, bytes[i], 16, 2);
    } else if (msw_is(kind, "l4")) { /* FLAGS,WHAT,CHECKSUM FROM,TO */
        struct msw_text part;
        uint64_t numbers[3];
        for (uint32_t i = 0; i < 3; i++) msw_next(&first, ',', &part), msw_parse_number(part, &numbers[i]);
        struct msw_packet packet = {.flags = (uint16_t)numbers[0]};
        uint8_t checksum[2];
        msw_put_be16(checksum, (uint16_t)numbers[2]);
        msw_next(&second, ',', &part);
        uint32_t len = bytes_of(part, bytes);
        bytes_of(second, more);
        msw_l4_update(&packet, checksum, bytes, more, len, (uint32_t)numbers[1]);
        msw_print_number(out, msw_be16(checksum));
    } else if (msw_is(kind, "insert") && msw_parse_prefix(first, &prefix) && msw_parse_number(second, &number)) {
        struct msw_table *table = prefix.bytes == 4 ? &memory4.table : &memory6.table;
        msw_print_number(out, msw_value_get(msw_lpm_insert(table, &prefix, number)));
    } else if (msw_is(kind, "remove") && msw_parse_prefix(first, &prefix)) {
        msw_print_number(out, (uint64_t)msw_lpm_remove(prefix.bytes == 4 ? &memory4.table : &memory6.table, &prefix));
    } else if (msw_is(kind, "find") && msw_parse_prefix(first, &prefix)) {
        struct msw_table *table = prefix.bytes == 4 ? &memory4.table : &memory6.table;
        uint64_t *value = msw_lpm_find(table, prefix.address, prefix.bytes);
        if (value) msw_print_number(out, msw_value_get(value));
        else msw_print(out, "none");
    } else if (msw_is(kind, "headers")) {
        struct msw_headers found = msw_parse_headers(bytes, bytes_of(first, bytes));
        uint64_t shown[] = {found.ether_type, found.vlan, found.l3, found.protocol, found.l4};
        numbers(out, shown, 5);
    } else if (msw_is(kind, "transport")) {
        struct msw_headers found = msw_parse_headers(bytes, bytes_of(first, bytes));
        uint64_t shown[] = {found.version, found.invalid, found.l4, found.source_port ? found.source_port : found.type,
                            found.destination_port ? found.destination_port : found.code, found.tcp_flags,
                            found.is_fragment, found.fragment, found.more, found.end, found.source};
        numbers(out, shown, 11);
    } else if (msw_is(kind, "one")) one_packet(out, bytes, bytes_of(first, bytes));
    else if (msw_is(kind, "failed")) {
        struct msw_printer empty = msw_printer_of((char *)bytes, sizeof bytes);
        int32_t len = msw_failed(&empty);
        msw_print_text(out, (struct msw_text){(char *)bytes, (char *)bytes - len});
    } else msw_print(out, "wrong");
}

int main(void) {
    char line[4096], text[4096];
    while (fgets(line, sizeof line, stdin)) {
        struct msw_printer out = msw_printer_of(text, sizeof text);
        answer((struct msw_text){line, line + strcspn(line, "\n")}, &out);
        fwrite(text, 1, (size_t)msw_done(&out), stdout);
        putchar('\n');
    }
    return 0;
}
