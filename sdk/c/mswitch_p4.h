/*
 * Functions for P4 programs in mswitch: a program declares them as `extern`, and a shared object has them.
 * docs/p4.md, "Functions of your own", is the guide; this file is the interface, version 1.
 *
 *   cc -O2 -shared -fPIC -Isdk/c -o siphash.so siphash.c
 *   mswitch logic set br0 p4:syn_cookies.p4 --param functions=/etc/mswitch/siphash.so
 *
 * A function gets all values that go in, and leaves those that come out, as words of 64 bits, each in the order of
 * the parameters: a value of w bits has (w + 63) / 64 words, the least significant one first. What comes out is zero
 * before; bits beyond its type are ignored. Workers call functions at the same time, for each packet: they must not
 * wait. They are trusted like any native module.
 */
#ifndef MSWITCH_P4_H
#define MSWITCH_P4_H

#include <stddef.h>
#include <stdint.h>

/* The version of this interface. */
#define MSW_P4_ABI 1

/* A function. */
struct msw_p4_function {
    /* As the program declares it. */
    const char *name;
    /* Types, such as "out bit<64>, in bit<128>": the result first, as `out`; `inout` is two, `in` and then `out`.
     * Enumerations and errors are bit<32>. */
    const char *params;
    void (*call)(const uint64_t *in, uint64_t *out);
};

/* Once in a shared object: its functions, as initializers of struct msw_p4_function. */
#define MSW_P4_FUNCTIONS(...)                                                                       \
    __attribute__((visibility("default"))) uint32_t msw_p4_abi(void) { return MSW_P4_ABI; }         \
    __attribute__((visibility("default"))) const struct msw_p4_function *msw_p4_functions(void) {   \
        static const struct msw_p4_function list[] = {__VA_ARGS__, {NULL, NULL, NULL}};             \
        return list;                                                                                \
    }

#endif
