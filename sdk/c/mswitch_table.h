/*
 * Tables of modules for mswitch: shared by all workers, shown by `mswitch logic show`, and handed over to the next
 * module if it has a table of the same name, with keys and values of the same length.
 *
 * The switch creates tables from the description. Keys and values are padded with zeroes to a multiple of 8 bytes.
 * Values of 8 bytes are read and written atomically; the words of a longer value are not updated together. A lookup
 * may find an entry that another worker is removing. When workers add the same key concurrently, one entry stays, and
 * changes to the others are lost.
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
    uint32_t mask;        /* Number of slots minus 1. */
    uint32_t slot_len;    /* Bytes. */
    uint32_t key_words;   /* 8 bytes each. */
    uint32_t value_words;
    uint64_t prefixes[3]; /* Bitmap of the prefix lengths that are or were in the table: mswitch_lpm.h. */
    uint64_t reserved[2];
};

/* A table, by its position in the description. */
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

/* A slot: a sequence number (bit 0: being written; bit 1: has an entry), the key, the value. */
static inline int msw_table_has(const uint64_t *slot, const uint64_t *key, uint32_t words) {
    if ((__atomic_load_n(slot, __ATOMIC_ACQUIRE) & 3) != 2) return 0;
    for (uint32_t i = 0; i < words; i++)
        if (__atomic_load_n(slot + 1 + i, __ATOMIC_RELAXED) != key[i]) return 0;
    return 1;
}

/* Finds the value of a key whose length, in words of 8 bytes, is a constant; NULL if there is none. */
static inline uint64_t *msw_table_find_words(struct msw_table *table, const uint64_t *key, uint32_t words) {
    uint64_t first = msw_table_hash(table, key, words);
    for (uint32_t i = 0; i < MSW_TABLE_PROBE; i++) {
        uint64_t *slot = msw_table_slot(table, first + i);
        if (msw_table_has(slot, key, words)) return slot + 1 + words;
        /* A slot that was never used: the key is in no later slot. */
        if (__atomic_load_n(slot, __ATOMIC_RELAXED) == 0) return NULL;
    }
    return NULL;
}

/* Finds the value of a key, for msw_value_get and msw_value_set; NULL if there is none. */
static inline uint64_t *msw_table_find(struct msw_table *table, const uint64_t *key) {
    return msw_table_find_words(table, key, table->key_words);
}

static inline uint64_t msw_value_get(const uint64_t *value) { return __atomic_load_n(value, __ATOMIC_RELAXED); }
static inline void msw_value_set(uint64_t *value, uint64_t to) { __atomic_store_n(value, to, __ATOMIC_RELAXED); }

/* Resolves concurrent insertions of a key: the first entry stays, the others are removed. Returns the first entry's
 * value. */
static inline uint64_t *msw_table_settle(struct msw_table *table, uint64_t first, const uint64_t *key, uint64_t *added) {
    uint64_t *stays = NULL;
    /* Of two workers that insert and then look, at least one sees the other's entry. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
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

/* Finds or adds a key and returns its value, which starts with `value` if the key is new; NULL if there is no room. */
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

/* Adds to a word of a value atomically; returns the word before. */
static inline uint64_t msw_value_add(uint64_t *value, uint64_t more) { return __atomic_fetch_add(value, more, __ATOMIC_RELAXED); }

/* Compare and exchange: changes a value from `from` to `to`; returns whether it was `from`. */
static inline int msw_value_change(uint64_t *value, uint64_t from, uint64_t to) {
    return __atomic_compare_exchange_n(value, &from, to, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* Removes an entry; returns whether it existed. */
static inline int msw_table_remove(struct msw_table *table, const uint64_t *key) {
    uint64_t *value = msw_table_find(table, key);
    if (!value) return 0;
    uint64_t *slot = value - table->key_words - 1;
    uint64_t sequence = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    if (!msw_table_has(slot, key, table->key_words) || (sequence & 3) != 2) return 0;
    return __atomic_compare_exchange_n(slot, &sequence, (sequence & ~(uint64_t)3) + 4, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* For iteration: the key in a slot from 0 to table->mask, followed by its value; NULL for an empty slot. */
static inline uint64_t *msw_table_entry(struct msw_table *table, uint32_t slot) {
    uint64_t *at = msw_table_slot(table, slot);
    return (__atomic_load_n(at, __ATOMIC_ACQUIRE) & 3) == 2 ? at + 1 : NULL;
}

#endif
