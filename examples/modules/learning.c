/* A learning bridge: a station is at the port that last received a packet from it (IEEE 802.1Q, 8.7 and 8.8). */
#include "mswitch_address.h"
#include "mswitch_table.h"

const char *msw_describe(void) {
    return "{\"name\": \"learning\", \"summary\": \"a learning bridge\","
           " \"params\": [{\"name\": \"ageing\", \"type\": \"number\", \"max\": 1000000, \"unit\": \"seconds\", \"default\": \"300\","
           "               \"help\": \"time after which a silent station is forgotten; 0: never\"}],"
           " \"tables\": [{\"name\": \"fdb\", \"capacity\": 8192, \"expires\": \"ageing\","
           "               \"key\": [[\"station\", \"mac\"], [\"vlan\", \"u16\"]],"
           "               \"value\": [[\"port\", \"port\"], [\"flags\", \"u16\"], [\"heard\", \"seconds\"]]}],"
           " \"commands\": [{\"name\": \"forget\", \"usage\": \"MAC\", \"help\": \"forgets a station that is in no VLAN\"}],"
           " \"counters\": [{\"name\": \"learned\", \"help\": \"new stations\"},"
           "                {\"name\": \"moved\", \"help\": \"stations that moved to another port\"}]}";
}

/* A station in its VLAN: the table's key. */
static uint64_t key_of(const uint8_t *station, uint16_t vlan) {
    uint64_t key = 0;
    __builtin_memcpy(&key, station, 6);
    return key | (uint64_t)vlan << 48;
}

static void learn(struct msw_batch *batch, struct msw_table *fdb, uint64_t key, uint32_t now) {
    uint64_t here = batch->ingress | (uint64_t)now << 32;
    uint64_t *value = msw_table_find_words(fdb, &key, 1);
    if (!value) {
        if (msw_table_insert(fdb, &key, here)) msw_counters(batch)[0]++;
        return;
    }
    uint64_t before = msw_value_get(value);
    if (before == here || (before & 0xffff0000)) return; /* Unchanged, or static. */
    if ((uint16_t)before != batch->ingress) msw_counters(batch)[1]++;
    msw_value_set(value, here);
}

uint32_t msw_forward(struct msw_batch *batch) {
    struct msw_table *fdb = msw_table(batch, 0);
    struct msw_packet *packets = msw_packets(batch);
    struct msw_output *out = msw_outputs(batch);
    uint32_t now = (uint32_t)(batch->now / 1000000000);
    for (uint32_t i = 0; i < batch->packets; i++, out++) {
        const uint8_t *frame = msw_header(batch, &packets[i]);
        uint64_t source = key_of(frame + 6, packets[i].vlan), destination = key_of(frame, packets[i].vlan);
        if (!(frame[6] & 1)) learn(batch, fdb, source, now);
        uint64_t *value = frame[0] & 1 ? NULL : msw_table_find_words(fdb, &destination, 1);
        out->packet = (uint16_t)i;
        out->port = value ? (uint16_t)msw_value_get(value) : 0;
        out->verb = value ? MSW_SEND : frame[0] & 1 ? MSW_FLOOD : MSW_FLOOD_UNKNOWN;
        if (msw_be32(frame) == 0x0180c200 && frame[4] == 0 && frame[5] < 16) out->verb = MSW_DROP;
    }
    return batch->packets;
}

int32_t msw_command(struct msw_batch *batch, uint32_t number) {
    uint8_t station[6];
    int is_one = number == 0 && msw_parse_mac(msw_arguments(batch), station);
    uint64_t key = is_one ? key_of(station, 0) : 0;
    int gone = is_one && msw_table_remove(msw_table(batch, 0), &key);
    struct msw_printer answer = msw_answer(batch);
    msw_print(&answer, gone ? "forgotten" : is_one ? "there is no such station" : "forget takes a MAC address");
    return gone ? msw_done(&answer) : msw_failed(&answer);
}
