/*
 * Longest-prefix matches in a table of a module for mswitch (mswitch_table.h): routes, access lists.
 *
 * The table's key is a network and a prefix length, in the description
 *
 *   "key": [["network", "ipv4"], ["length", "prefix"]]        or        [["network", "ipv6"], ["length", "prefix"]]
 *
 * A lookup tries each length that was ever used, the longest first, with one hash lookup for each.
 */
#ifndef MSWITCH_LPM_H
#define MSWITCH_LPM_H

#include "mswitch_address.h"
#include "mswitch_table.h"

/* Turns a prefix into a key; returns the number of words, 0 if the table is for other prefixes. */
static inline uint32_t msw_lpm_key(const struct msw_table *table, const struct msw_prefix *prefix, uint64_t key[3]) {
    uint32_t words = prefix->bytes == 4 ? 1 : 3;
    key[0] = key[1] = key[2] = 0;
    __builtin_memcpy(key, prefix->address, prefix->bytes);
    ((uint8_t *)key)[prefix->bytes] = prefix->length;
    return table->key_words == words ? words : 0;
}

/* Returns the value of exactly this prefix; NULL if there is none. */
static inline uint64_t *msw_lpm_get(struct msw_table *table, const struct msw_prefix *prefix) {
    uint64_t key[3];
    uint32_t words = msw_lpm_key(table, prefix, key);
    return words ? msw_table_find_words(table, key, words) : NULL;
}

/* Finds or adds a prefix and returns its value, which starts with `value` if the prefix is new; NULL if there is no
 * room. */
static inline uint64_t *msw_lpm_insert(struct msw_table *table, const struct msw_prefix *prefix, uint64_t value) {
    uint64_t key[3];
    if (!msw_lpm_key(table, prefix, key)) return NULL;
    __atomic_fetch_or(&table->prefixes[prefix->length / 64], (uint64_t)1 << prefix->length % 64, __ATOMIC_RELAXED);
    return msw_table_insert(table, key, value);
}

/* Removes a prefix; returns whether it existed. */
static inline int msw_lpm_remove(struct msw_table *table, const struct msw_prefix *prefix) {
    uint64_t key[3];
    return msw_lpm_key(table, prefix, key) && msw_table_remove(table, key);
}

/* Returns the value of the longest prefix that contains an address of 4 or 16 bytes, as in packets; NULL if there is
 * none. */
static inline uint64_t *msw_lpm_find(struct msw_table *table, const uint8_t *address, uint32_t bytes) {
    struct msw_prefix prefix = {.bytes = (uint8_t)bytes, .length = (uint8_t)(bytes * 8)};
    __builtin_memcpy(prefix.address, address, bytes);
    for (uint32_t word = bytes * 8 / 64 + 1; word-- > 0;) {
        uint64_t lengths = __atomic_load_n(&table->prefixes[word], __ATOMIC_RELAXED);
        while (lengths) {
            uint32_t bit = 63 - (uint32_t)__builtin_clzll(lengths);
            lengths &= ~((uint64_t)1 << bit);
            if (word * 64 + bit > bytes * 8) continue;
            prefix.length = (uint8_t)(word * 64 + bit);
            msw_mask(prefix.address, bytes, prefix.length);
            uint64_t *value = msw_lpm_get(table, &prefix);
            if (value) return value;
        }
    }
    return NULL;
}

#endif
