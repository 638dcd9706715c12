/* SipHash-2-4 (Aumasson and Bernstein, 2012) for P4 programs: a keyed hash that attackers cannot predict, which no hash
 * of an architecture is.
 *
 *   extern bit<64> siphash(in bit<128> key, in bit<104> data);
 *
 * The data are hashed in network byte order; the key's least significant word comes first. */
#include "mswitch_p4.h"

#define BYTES 13 /* of data */

static uint64_t rotated(uint64_t x, int by) { return x << by | x >> (64 - by); }

static void rounds(uint64_t v[4], int count) {
    while (count-- > 0) {
        v[0] += v[1], v[1] = rotated(v[1], 13) ^ v[0], v[0] = rotated(v[0], 32);
        v[2] += v[3], v[3] = rotated(v[3], 16) ^ v[2];
        v[0] += v[3], v[3] = rotated(v[3], 21) ^ v[0];
        v[2] += v[1], v[1] = rotated(v[1], 17) ^ v[2], v[2] = rotated(v[2], 32);
    }
}

/* in: two words of key, two of data. */
static void siphash(const uint64_t *in, uint64_t *out) {
    const uint64_t *key = in, *data = in + 2;
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d, key[0] ^ 0x6c7967656e657261,
                     key[1] ^ 0x7465646279746573};
    /* Words of eight bytes, the last with the length in its highest byte. */
    for (int from = 0; from <= BYTES; from += 8) {
        uint64_t word = from + 8 > BYTES ? (uint64_t)BYTES << 56 : 0;
        for (int i = from; i < from + 8 && i < BYTES; i++) {
            int bit = (BYTES - 1 - i) * 8;
            word |= (data[bit / 64] >> bit % 64 & 0xff) << (i - from) * 8;
        }
        v[3] ^= word;
        rounds(v, 2);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    rounds(v, 4);
    out[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
}

MSW_P4_FUNCTIONS({"siphash", "out bit<64>, in bit<128>, in bit<104>", siphash})
