/*
 * Tables of modules for mswitch: shared by all workers, shown by `mswitch logic show`, and handed over to the module that takes
 * this one's place, if that has a table of the same name, key and value.
 *
 * The switch makes them as the description says. Keys and values are a multiple of 8 bytes long, filled up with zeroes. Values of
 * 8 bytes are read and written in one piece, whatever other workers do; of longer ones, parts may be older than others.
 * An entry that somebody else removes meanwhile may be found once more. Of a key that workers add at the same moment one entry
 * stays; what the others have put into theirs until they see it is lost.
 */
#ifndef MSWITCH_TABLE_H
#define MSWITCH_TABLE_H

#include "mswitch.h"

#if defined(__wasm__) && !defined(__wasm_atomics__)
#error "workers share tables: compile with -matomics -mbulk-memory"
#endif

#define MSW_TABLE_PROBE 32

struct msw_table {
    uint64_t seed;
    uint32_t mask;        /* Slots, less one. */
    uint32_t slot_len;    /* Bytes. */
    uint32_t key_words;   /* 8 bytes each. */
    uint32_t value_words;
    uint64_t prefixes[3]; /* A bit for each length of a prefix that is or was in the table: mswitch_lpm.h. */
    uint64_t reserved[2];
};

/* Table number so and so of the description. */
static inline struct msw_table *msw_table(struct msw_batch *batch, uint32_t number) {
    return (struct msw_table *)(uintptr_t)batch->tables[number];
}

static inline uint64_t *msw_table_slot(struct msw_table *table, uint64_t slot) {
    return (uint64_t *)((uint8_t *)(table + 1) + (size_t)(slot & table->mask) * table->slot_len);
}

static inline uint64_t msw_table_hash(const struct msw_table *table, const uint64_t *key, uint32_t words) {
    uint64_t hash = table->seed;
    for (uint32_t i = 0; i < words; i++) {
        hash = (hash ^ key[i]) * 0x9e3779b97f4a7c15;
        hash ^= hash >> 32;
    }
    hash *= 0xd6e8feb86659fd93;
    return hash ^ hash >> 32;
}

/* A slot: a sequence number (bit 0: somebody writes it; bit 1: it has an entry), the key, the value. */
static inline int msw_table_has(const uint64_t *slot, const uint64_t *key, uint32_t words) {
    if ((__atomic_load_n(slot, __ATOMIC_ACQUIRE) & 3) != 2) return 0;
    for (uint32_t i = 0; i < words; i++)
        if (__atomic_load_n(slot + 1 + i, __ATOMIC_RELAXED) != key[i]) return 0;
    return 1;
}

/* The value of a key whose length in words of 8 bytes is known here; NULL if there is none. */
static inline uint64_t *msw_table_find_words(struct msw_table *table, const uint64_t *key, uint32_t words) {
    uint64_t first = msw_table_hash(table, key, words);
    for (uint32_t i = 0; i < MSW_TABLE_PROBE; i++) {
        uint64_t *slot = msw_table_slot(table, first + i);
        if (msw_table_has(slot, key, words)) return slot + 1 + words;
        if (__atomic_load_n(slot, __ATOMIC_RELAXED) == 0) return NULL; /* Nothing was ever put here or behind. */
    }
    return NULL;
}

/* The value of a key, to be read and written by msw_value_get and msw_value_set; NULL if there is none. */
static inline uint64_t *msw_table_find(struct msw_table *table, const uint64_t *key) {
    return msw_table_find_words(table, key, table->key_words);
}

static inline uint64_t msw_value_get(const uint64_t *value) { return __atomic_load_n(value, __ATOMIC_RELAXED); }
static inline void msw_value_set(uint64_t *value, uint64_t to) { __atomic_store_n(value, to, __ATOMIC_RELAXED); }

/* Once a key was added: should others have added it too, the first one stays and the later ones go. Returns the value of that. */
static inline uint64_t *msw_table_settle(struct msw_table *table, uint64_t first, const uint64_t *key, uint64_t *added) {
    uint64_t *stays = NULL;
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* Of two that write and then look, one at least sees the other's. */
    for (uint32_t i = 0; i < MSW_TABLE_PROBE; i++) {
        uint64_t *slot = msw_table_slot(table, first + i);
        uint64_t sequence = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
        if (sequence == 0) break;
        if (!msw_table_has(slot, key, table->key_words)) continue;
        if (!stays) stays = slot;
        else
            __atomic_compare_exchange_n(slot, &sequence, (sequence & ~(uint64_t)3) + 4, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    }
    return (stays ? stays : added) + 1 + table->key_words;
}

/* The value of a key, with this first word if the key is new; NULL if there is no room. */
static inline uint64_t *msw_table_insert(struct msw_table *table, const uint64_t *key, uint64_t value) {
    uint32_t words = table->key_words;
    uint64_t *found = msw_table_find_words(table, key, words);
    if (found) return found;
    uint64_t first = msw_table_hash(table, key, words);
    for (uint32_t i = 0; i < MSW_TABLE_PROBE; i++) {
        uint64_t *slot = msw_table_slot(table, first + i);
        uint64_t sequence = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
        if (sequence & 3) {
            if (msw_table_has(slot, key, words)) return slot + 1 + words; /* Another worker was faster. */
            continue;
        }
        if (!__atomic_compare_exchange_n(slot, &sequence, sequence | 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) continue;
        for (uint32_t k = 0; k < words; k++) __atomic_store_n(slot + 1 + k, key[k], __ATOMIC_RELAXED);
        __atomic_store_n(slot + 1 + words, value, __ATOMIC_RELAXED);
        for (uint32_t k = 1; k < table->value_words; k++) __atomic_store_n(slot + 1 + words + k, 0, __ATOMIC_RELAXED);
        __atomic_store_n(slot, (sequence + 4) | 2, __ATOMIC_RELEASE);
        return msw_table_settle(table, first, key, slot);
    }
    return NULL;
}

/* Adds to a value's word, whatever other workers add meanwhile; returns what it was. */
static inline uint64_t msw_value_add(uint64_t *value, uint64_t more) { return __atomic_fetch_add(value, more, __ATOMIC_RELAXED); }

/* Changes a value from what it was to what it is to be; returns whether it still was so. */
static inline int msw_value_change(uint64_t *value, uint64_t from, uint64_t to) {
    return __atomic_compare_exchange_n(value, &from, to, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* Removes an entry; returns whether there was one. */
static inline int msw_table_remove(struct msw_table *table, const uint64_t *key) {
    uint64_t *value = msw_table_find(table, key);
    if (!value) return 0;
    uint64_t *slot = value - table->key_words - 1;
    uint64_t sequence = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    if (!msw_table_has(slot, key, table->key_words) || (sequence & 3) != 2) return 0;
    return __atomic_compare_exchange_n(slot, &sequence, (sequence & ~(uint64_t)3) + 4, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* For walking a table: the key in slot 0 to table->mask, behind which its value is; NULL if there is none. */
static inline uint64_t *msw_table_entry(struct msw_table *table, uint32_t slot) {
    uint64_t *at = msw_table_slot(table, slot);
    return (__atomic_load_n(at, __ATOMIC_ACQUIRE) & 3) == 2 ? at + 1 : NULL;
}

#endif
