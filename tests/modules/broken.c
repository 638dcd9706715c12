/* Faulty native modules; the name that is defined at compilation selects the fault. A packet of EtherType 0x88b5
 * triggers it; other packets are flooded. */
#include "mswitch.h"

void abort(void);
unsigned sleep(unsigned seconds);

const char *msw_describe(void) {
    return "{\"name\": \"broken\", \"summary\": \"faulty module\","
           " \"commands\": [{\"name\": \"spin\", \"help\": \"does not return\"}, {\"name\": \"hello\", \"help\": \"returns\"}]}";
}

static volatile uint32_t zero;

static void spin(void) {
    while (!zero) {}
}

/* Not inlined, so that the stack grows. */
__attribute__((noinline, unused)) static uint32_t deep(uint32_t n) {
    volatile uint8_t room[4096];
    room[n % 4096] = (uint8_t)n;
    return n == zero - 1 ? 0 : deep(n + 1) + room[(n + 1) % 4096];
}

#if defined(SPIN_RESTART)
static volatile uint32_t failed;

/* Returns until an instance has failed. */
int32_t msw_start(struct msw_batch *batch) {
    if (failed) spin();
    return batch == 0;
}
#elif defined(SPIN_START)
int32_t msw_start(struct msw_batch *batch) {
    spin();
    return batch == 0;
}
#endif

uint32_t msw_forward(struct msw_batch *batch) {
    struct msw_output *out = msw_outputs(batch);
    for (uint32_t i = 0; i < batch->packets; i++) {
        const uint8_t *frame = msw_header(batch, &msw_packets(batch)[i]);
        out[i] = (struct msw_output){.packet = (uint16_t)i, .verb = MSW_FLOOD};
        if (msw_be16(frame + 12) != 0x88b5) continue;
#if defined(SPIN)
        spin();
#elif defined(SPIN_RESTART)
        failed = 1;
        return 1000000;
#elif defined(NAP)
        sleep(3);
#elif defined(NULL_POINTER)
        *(volatile uint8_t *)(uintptr_t)zero = 1;
#elif defined(ABORT)
        abort();
#elif defined(DIVIDE)
        out[i].port = (uint16_t)(1000 / zero);
#elif defined(DEEP)
        out[i].port = (uint16_t)deep(zero);
#elif defined(HOST)
        msw_new(batch, (const void *)8, 1000);
#endif
    }
    return batch->packets;
}

int32_t msw_command(struct msw_batch *batch, uint32_t number) {
    if (number == 0) spin();
    msw_text(batch, batch->text_at)[0] = '!';
    return 1;
}
