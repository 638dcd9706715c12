/* Routes by longest prefix. The parameter lists prefixes and ports, such as
 * routes="10.0.0.0/8=vm1 2001:db8::/32=uplink". Routes refer to ports by name, so ports may be removed and added again.
 * The module decrements the TTL or hop limit. */
#include "mswitch_checksum.h"
#include "mswitch_lpm.h"

#define HOPS 32 /* Maximum number of different ports. */
#define ETH 14  /* Length of an Ethernet header. */

/* A worker's state. */
struct state {
    uint32_t hops;
    struct msw_port_name hop[HOPS];
};

const char *msw_describe(void) {
    /* The routes come from the parameter, not from an earlier instance. */
    return "{\"name\": \"route\", \"summary\": \"forwards packets by longest prefix\", \"state\": 4096,"
           " \"params\": [{\"name\": \"routes\", \"type\": \"text\", \"max\": 1024, \"help\": \"PREFIX=PORT, separated by blanks\"}],"
           " \"tables\": [{\"name\": \"routes4\", \"capacity\": 256, \"hand_over\": false,"
           "               \"key\": [[\"network\", \"ipv4\"], [\"length\", \"prefix\"]], \"value\": [[\"hop\", \"u32\"]]},"
           "              {\"name\": \"routes6\", \"capacity\": 256, \"hand_over\": false,"
           "               \"key\": [[\"network\", \"ipv6\"], [\"length\", \"prefix\"]], \"value\": [[\"hop\", \"u32\"]]}],"
           " \"counters\": [{\"name\": \"routed\", \"help\": \"packets sent to a port\"},"
           "                {\"name\": \"expired\", \"help\": \"packets whose TTL expired\"}],"
           " \"commands\": [{\"name\": \"find\", \"usage\": \"ADDRESS\", \"help\": \"shows the route to an address\"}]}";
}

static int32_t refuse(struct msw_batch *batch, const char *reason, struct msw_text text) {
    struct msw_printer out = msw_answer(batch);
    msw_print(&out, reason);
    msw_print_text(&out, text);
    return msw_failed(&out);
}

/* Finds or adds the hop of a port; HOPS if there is no room, or the name is invalid. */
static uint32_t hop_of(struct state *state, struct msw_text name) {
    size_t len = (size_t)(name.end - name.at);
    for (uint32_t i = 0; i < state->hops; i++)
        if (state->hop[i].len == len && msw_same(state->hop[i].name, name.at, len)) return i;
    if (state->hops == HOPS || !msw_port_name(&state->hop[state->hops], name.at, len)) return HOPS;
    return state->hops++;
}

int32_t msw_start(struct msw_batch *batch) {
    struct state *state = msw_state(batch);
    struct msw_text routes = msw_param(batch, 0), route, prefix_text;
    struct msw_prefix prefix;
    while (msw_next(&routes, ' ', &route)) {
        struct msw_text name = route;
        if (!msw_next(&name, '=', &prefix_text)) continue; /* A second blank. */
        if (!msw_parse_prefix(prefix_text, &prefix)) return refuse(batch, "not a prefix: ", prefix_text);
        uint32_t hop = hop_of(state, name);
        if (hop == HOPS) return refuse(batch, "not the name of a port, or one too many: ", route);
        if (!msw_lpm_insert(msw_table(batch, prefix.bytes == 16), &prefix, hop)) return refuse(batch, "no room for ", route);
    }
    return 0;
}

/* Finds the destination address in a packet and sets its length; NULL if the packet cannot be routed. */
static uint8_t *destination(const struct msw_packet *packet, uint8_t *frame, uint32_t *bytes) {
    uint16_t type = msw_be16(frame + 12);
    *bytes = type == 0x0800 ? 4 : 16;
    if (type == 0x0800 && packet->header_len >= ETH + 20) return frame + ETH + 16;
    if (type == 0x86dd && packet->header_len >= ETH + 40) return frame + ETH + 24;
    return NULL;
}

/* Decrements the TTL or hop limit; returns 0 if it expires. */
static int decrement_ttl(uint8_t *ip, int is_v4) {
    uint8_t *ttl = ip + (is_v4 ? 8 : 7);
    if (*ttl < 2) return 0;
    if (is_v4) msw_ipv4_replace(ip, 8, (const uint8_t[]){(uint8_t)(*ttl - 1), ip[9]}, 2);
    else
        --*ttl;
    return 1;
}

uint32_t msw_forward(struct msw_batch *batch) {
    struct state *state = msw_state(batch);
    struct msw_packet *packets = msw_packets(batch);
    struct msw_output *out = msw_outputs(batch);
    uint32_t outputs = 0, bytes;
    for (uint32_t i = 0; i < batch->packets; i++) {
        uint8_t *frame = msw_header(batch, &packets[i]), *to = destination(&packets[i], frame, &bytes);
        if (!to) continue;
        uint64_t *hop = msw_lpm_find(msw_table(batch, bytes == 16), to, bytes);
        if (!hop || msw_value_get(hop) >= state->hops) continue;
        struct msw_port_name *port = &state->hop[msw_value_get(hop)];
        int32_t index = msw_port_of(batch, port);
        if (index < 0) continue;
        if (!decrement_ttl(frame + ETH, bytes == 4)) {
            msw_counters(batch)[1]++;
            out[outputs++] = (struct msw_output){.packet = (uint16_t)i, .verb = MSW_DROP};
            continue;
        }
        msw_counters(batch)[0]++;
        out[outputs++] = (struct msw_output){.packet = (uint16_t)i, .port = (uint16_t)index, .verb = MSW_SEND};
    }
    return outputs;
}

int32_t msw_command(struct msw_batch *batch, uint32_t number) {
    struct state *state = msw_state(batch);
    struct msw_prefix address;
    int is_one = number == 0 && msw_parse_prefix(msw_arguments(batch), &address) && address.length == address.bytes * 8;
    if (!is_one) return refuse(batch, "find takes an address", (struct msw_text){0});
    struct msw_printer out = msw_answer(batch);
    uint64_t *hop = msw_lpm_find(msw_table(batch, address.bytes == 16), address.address, address.bytes);
    msw_print_prefix(&out, &address);
    if (!hop || msw_value_get(hop) >= state->hops) {
        msw_print(&out, ": no route");
        return msw_failed(&out);
    }
    struct msw_port_name *port = &state->hop[msw_value_get(hop)];
    int32_t index = msw_port_of(batch, port);
    msw_print(&out, ": port ");
    msw_print_text(&out, (struct msw_text){port->name, port->name + port->len});
    msw_print(&out, index < 0 ? ", which the bridge does not have" : ", index ");
    if (index >= 0) msw_print_number(&out, (uint64_t)index);
    return msw_done(&out);
}
