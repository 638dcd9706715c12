/* Faulty modules; the name that is defined at compilation selects the fault. */
#if defined(OLD)
#define MSW_ABI 0
#endif
#include "mswitch.h"
#include "mswitch_table.h"

const char *msw_describe(void) {
#if defined(NO_JSON)
    return "learning";
#elif defined(EMPTY)
    return "";
#elif defined(NO_COMMAND)
    return "{\"name\": \"hostile\", \"summary\": \"\", \"commands\": [{\"name\": \"do\", \"help\": \"\"}]}";
#elif defined(NO_TIMER)
    return "{\"name\": \"hostile\", \"summary\": \"\", \"timer\": 100}";
#elif defined(BIG_TABLE)
    return "{\"name\": \"big\", \"summary\": \"\", \"tables\": [{\"name\": \"t\", \"key\": [[\"k\", \"u64\"]],"
           " \"value\": [[\"v\", \"u64\"]], \"capacity\": 4000000000}]}";
#elif defined(ENDLESS)
    static char text[1 << 20];
    for (unsigned i = 0; i < sizeof text; i++) ((volatile char *)text)[i] = ' ';
    return text;
#elif defined(RESTART)
    return "{\"name\": \"hostile\", \"summary\": \"faulty module\", \"tables\": [{\"name\": \"t\", \"capacity\": 8,"
           " \"key\": [[\"k\", \"u64\"]], \"value\": [[\"v\", \"u64\"]]}]}";
#else
    return "{\"name\": \"hostile\", \"summary\": \"faulty module\"}";
#endif
}

#if defined(IMPORTS)
__attribute__((import_module("env"), import_name("open"))) int open_file(const char *name);
#endif

#if defined(REFUSES)
int32_t msw_start(struct msw_batch *batch) { return batch ? 7 : 0; }
#elif defined(RESTART)
/* Returns once for each worker; later calls never return. */
int32_t msw_start(struct msw_batch *batch) {
    uint64_t worker = batch->worker;
    while (msw_table_find(msw_table(batch, 0), &worker)) {}
    return msw_table_insert(msw_table(batch, 0), &worker, 1) ? 0 : 1;
}
#elif defined(SLOW_START)
int32_t msw_start(struct msw_batch *batch) {
    for (volatile uint32_t i = 0;; i++)
        if (!batch) return 0;
}
#endif

#if defined(TRAP)
/* A separate function, whose name the trap's message must contain. */
__attribute__((noinline)) static void lookup(const struct msw_batch *batch) {
    if (batch->packets) __builtin_trap();
}
#endif

uint32_t msw_forward(struct msw_batch *batch) {
    struct msw_packet *packets = msw_packets(batch);
    struct msw_output *out = msw_outputs(batch);
    out[0] = (struct msw_output){.packet = 0, .verb = MSW_FLOOD};
    (void)packets;
#if defined(TRAP)
    lookup(batch);
#elif defined(RESTART)
    __builtin_trap();
#elif defined(LOOP)
    for (volatile uint32_t i = 0;; i++) {}
#elif defined(LEAK)
    for (uint32_t i = 0; i < 4; i++)
        if (__builtin_wasm_memory_grow(0, 16) == (size_t)-1) __builtin_trap();
#elif defined(PACKET)
    out[0].packet = 60000;
#elif defined(VERB)
    out[0].verb = 99;
#elif defined(SETS)
    for (uint32_t port = 0; port < 4096; port++) msw_set_add(batch, 0, port);
    for (uint32_t i = 0; i < batch->output_room; i++) out[i] = (struct msw_output){.packet = 0, .port = 0, .verb = MSW_SEND_SET};
    return batch->output_room;
#elif defined(OUTPUTS)
    return 1000000;
#elif defined(BOUNDS)
    *(volatile uint8_t *)(uintptr_t)0xfffffff0 = 1;
#elif defined(PORT)
    out[0] = (struct msw_output){.packet = 0, .port = 65535, .verb = MSW_SEND};
#elif defined(HEADER)
    packets[0].header -= 4096;
#elif defined(IMPORTS)
    open_file("/etc/passwd");
#endif
    return 1;
}
