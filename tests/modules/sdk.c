/* The SDK's helpers as a program: each line of standard input has a helper's name and its arguments, each line of
 * output its result. */
#include <stdio.h>
#include <string.h>

#include "mswitch_address.h"
#include "mswitch_checksum.h"
#include "mswitch_lpm.h"

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
