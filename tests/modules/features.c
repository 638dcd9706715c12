/* Uses features that no example needs: timers, generated packets, retained packets, port sets, explanations, the log.
 * Packets go to the ports in the parameter "ports"; packets of EtherType 0x88b5 are retained until the next timer
 * call. */
#include "mswitch.h"
#include "mswitch_table.h"

const char *msw_describe(void) {
    return "{\"name\": \"features\", \"summary\": \"for tests\", \"timer\": \"beat\", \"retain\": 4,"
           " \"params\": [{\"name\": \"beat\", \"type\": \"duration\", \"min\": 1, \"default\": \"20ms\", \"help\": \"interval of beats\"},"
           "               {\"name\": \"vlan\", \"type\": \"number\", \"max\": 4094, \"default\": 0, \"help\": \"VLAN of the beats\"},"
           "               {\"name\": \"size\", \"type\": \"number\", \"min\": 14, \"max\": 9000, \"default\": 60, \"help\": \"size of the beats in bytes\"},"
           "               {\"name\": \"burst\", \"type\": \"number\", \"default\": 0, \"help\": \"additional packets in every other beat\"},"
           "               {\"name\": \"ports\", \"type\": \"number\", \"default\": 0, \"help\": \"bit mask of destination ports\"}],"
           " \"counters\": [{\"name\": \"beats\", \"help\": \"timer calls\"},"
           "                {\"name\": \"retained\", \"help\": \"packets retained\"},"
           "                {\"name\": \"full\", \"help\": \"packets that could not be retained\"}],"
           " \"tables\": [{\"name\": \"seen\", \"capacity\": 64, \"key\": [[\"station\", \"mac\"]], \"value\": [[\"packets\", \"u64\"]]}]}";
}

int32_t msw_start(struct msw_batch *batch) {
    static const char reason[] = "a beat of 13 bytes is too short";
    if (msw_values(batch)[4].number == 13) {
        __builtin_memcpy(msw_text(batch, batch->text_at), reason, sizeof reason - 1);
        return -(int32_t)(sizeof reason - 1);
    }
    for (uint32_t port = 0; port < 64; port++)
        if (msw_values(batch)[4].number >> port & 1) msw_set_add(batch, 5, port);
    msw_log(batch, "ready", 5);
    return 0;
}

static uint64_t source_of(const uint8_t *frame) {
    uint64_t station = 0;
    __builtin_memcpy(&station, frame + 6, 6);
    return station;
}

uint32_t msw_forward(struct msw_batch *batch) {
    struct msw_output *out = msw_outputs(batch);
    uint32_t n = 0;
    for (uint32_t i = 0; i < batch->packets; i++) {
        uint8_t *frame = msw_header(batch, &msw_packets(batch)[i]);
        uint64_t station = source_of(frame), *seen = msw_table_insert(msw_table(batch, 0), &station, 0);
        uint64_t before = seen ? msw_value_add(seen, 1) : 0;
        if (msw_be16(frame + 12) == 0x88b5) {
            int32_t retained = msw_retain(batch, i);
            msw_counters(batch)[retained < 0 ? 2 : 1]++;
            if (retained < 0) out[n++] = (struct msw_output){.packet = (uint16_t)i, .verb = MSW_DROP};
            continue;
        }
        msw_explain(batch, i, "station {}", MSW_MAC, station);
        msw_explain(batch, i, "{} earlier packets", MSW_NUMBER, before);
        out[n++] = (struct msw_output){.packet = (uint16_t)i, .port = 5, .verb = MSW_SEND_SET};
    }
    return n;
}

uint32_t msw_timer(struct msw_batch *batch) {
    struct msw_output *out = msw_outputs(batch);
    uint8_t beat[9000] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 0xbe, 0x88, 0xb6};
    uint32_t n = 0, size = (uint32_t)msw_values(batch)[2].number;
    msw_counters(batch)[0]++;
    if (batch->packets || batch->ingress != MSW_NO_PORT) __builtin_trap();
    for (uint32_t i = 14; i < size; i++) beat[i] = (uint8_t)i;
    int32_t made = msw_new(batch, beat, size);
    if (made >= 0) {
        msw_packets(batch)[made].vlan = (uint16_t)msw_values(batch)[1].number;
        out[n++] = (struct msw_output){.packet = (uint16_t)made, .verb = MSW_FLOOD};
    }
    if (msw_counters(batch)[0] & 1)
        for (uint32_t i = 0; i < msw_values(batch)[3].number && msw_new(batch, beat, 60) >= 0; i++) continue;
    for (uint32_t retained = 0; retained < 4; retained++) {
        int32_t packet = msw_release(batch, retained);
        if (packet >= 0) out[n++] = (struct msw_output){.packet = (uint16_t)packet, .verb = MSW_FLOOD};
    }
    return n;
}
