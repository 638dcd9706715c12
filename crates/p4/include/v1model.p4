// The architecture v1model: the pipeline of the behavioural model's simple switch.
//
// V1MODEL_VERSION says which form of it a program was written for. From 20200408 on, ports have the name PortId_t, and
// counters, meters and registers take their index's type as a parameter.
#ifndef _V1_MODEL_P4_
#define _V1_MODEL_P4_

#include <core.p4>

#ifndef V1MODEL_VERSION
#define V1MODEL_VERSION 20180101
#endif

match_kind {
    range,      // between two bounds, both included
    optional,   // equal, or left out
    selector    // no match: the value picks a member of an action selector's group
}

const bit<32> __v1model_version = V1MODEL_VERSION;

#if V1MODEL_VERSION >= 20200408
typedef bit<9> PortId_t;
#endif

@metadata @name("standard_metadata")
struct standard_metadata_t {
#if V1MODEL_VERSION >= 20200408
    PortId_t ingress_port;
    PortId_t egress_spec;
    PortId_t egress_port;
#else
    bit<9> ingress_port;    // port that received the packet
    bit<9> egress_spec;     // port to send it to, set by ingress; 511 drops it
    bit<9> egress_port;     // port that it goes to, in egress
#endif
    // Origin: 0 received, 1 and 2 cloned from ingress and egress, 3 coalesced, 4 recirculated, 5 replicated,
    // 6 resubmitted.
    bit<32> instance_type;
    bit<32> packet_length;  // in bytes
    @alias("queueing_metadata.enq_timestamp")
    bit<32> enq_timestamp;
    @alias("queueing_metadata.enq_qdepth")
    bit<19> enq_qdepth;
    @alias("queueing_metadata.deq_timedelta")
    bit<32> deq_timedelta;
    @alias("queueing_metadata.deq_qdepth")
    bit<19> deq_qdepth;
    // Microseconds at which ingress and egress began.
    @alias("intrinsic_metadata.ingress_global_timestamp")
    bit<48> ingress_global_timestamp;
    @alias("intrinsic_metadata.egress_global_timestamp")
    bit<48> egress_global_timestamp;
    // Multicast group to send to, set by ingress; 0 is none.
    @alias("intrinsic_metadata.mcast_grp")
    bit<16> mcast_grp;
    // Number of the copy, in the egress of a multicast packet.
    @alias("intrinsic_metadata.egress_rid")
    bit<16> egress_rid;
    bit<1> checksum_error;  // 1 if verify_checksum found a wrong checksum
    error parser_error;     // error that ended the parser
    @alias("intrinsic_metadata.priority")
    bit<3> priority;        // class of the queue
}

enum CounterType {
    packets,
    bytes,
    packets_and_bytes
}

enum MeterType {
    packets,
    bytes
}

// An array of counters.
extern counter
#if V1MODEL_VERSION >= 20200408
<I>
#endif
{
    counter(bit<32> size, CounterType type);
    // Counts the packet in one of them; an index out of bounds counts nothing.
#if V1MODEL_VERSION >= 20200408
    void count(in I index);
#else
    void count(in bit<32> index);
#endif
}

// A counter for each entry of the table whose property `counters` names it. It counts packets that hit the entry.
extern direct_counter {
    direct_counter(CounterType type);
    // Counts the packet; a hit does so by itself.
    void count();
}

// Colours that meters give.
#define V1MODEL_METER_COLOR_GREEN 0
#define V1MODEL_METER_COLOR_YELLOW 1
#define V1MODEL_METER_COLOR_RED 2

// An array of meters: two rates with two bursts (RFC 2698).
extern meter
#if V1MODEL_VERSION >= 20200408
<I>
#endif
{
    meter(bit<32> size, MeterType type);
    // Measures the packet by one of them and gives its colour.
#if V1MODEL_VERSION >= 20200408
    void execute_meter<T>(in I index, out T result);
#else
    void execute_meter<T>(in bit<32> index, out T result);
#endif
}

// A meter for each entry of the table whose property `meters` names it.
extern direct_meter<T> {
    direct_meter(MeterType type);
    // Colour of the packet by the meter of the entry that it hit.
    void read(out T result);
}

// An array of values that outlive packets; they start at 0.
#if V1MODEL_VERSION >= 20200408
extern register<T, I>
#else
extern register<T>
#endif
{
    register(bit<32> size);
    // Reads an element; the result of an index out of bounds is undefined.
    @noSideEffects
#if V1MODEL_VERSION >= 20200408
    void read(out T result, in I index);
#else
    void read(out T result, in bit<32> index);
#endif
    // Writes an element; an index out of bounds is ignored.
#if V1MODEL_VERSION >= 20200408
    void write(in I index, in T value);
#else
    void write(in bit<32> index, in T value);
#endif
}

// Actions with arguments (members) that entries of tables share: property `implementation`.
extern action_profile {
    action_profile(bit<32> size);
}

// A random number between two bounds, both included.
extern void random<T>(out T result, in T lo, in T hi);

// Sends data to the control plane.
extern void digest<T>(in bit<32> receiver, in T data);

enum HashAlgorithm {
    crc32,
    crc32_custom,
    crc16,
    crc16_custom,
    random,
    identity,
    csum16,
    xor16
}

// Drops the packet at the end of ingress or egress unless a later assignment to egress_spec revokes it.
@deprecated("Please use mark_to_drop(standard_metadata) instead.")
extern void mark_to_drop();
@pure
extern void mark_to_drop(inout standard_metadata_t standard_metadata);

// base + (hash of data modulo max); base if max is 0.
@pure
extern void hash<O, T, D, M>(out O result, in HashAlgorithm algo, in T base, in D data, in M max);

// Members, as in an action profile, and groups of them: keys of the kind `selector` pick one of a group's members.
extern action_selector {
    action_selector(HashAlgorithm algorithm, bit<32> size, bit<32> outputWidth);
}

enum CloneType {
    I2E,    // of the packet as received, from ingress
    E2E     // of the packet as deparsed, from egress
}

// Internet checksum of data.
@deprecated("Please use verify_checksum/update_checksum instead.")
extern Checksum16 {
    Checksum16();
    bit<16> get<D>(in D data);
}

// Sets checksum_error if the condition holds and the checksum is wrong.
extern void verify_checksum<T, O>(in bool condition, in T data, in O checksum, HashAlgorithm algo);
// Sets the checksum if the condition holds.
@pure
extern void update_checksum<T, O>(in bool condition, in T data, inout O checksum, HashAlgorithm algo);
// The same for a checksum that includes the bytes behind the parsed headers.
extern void verify_checksum_with_payload<T, O>(in bool condition, in T data, in O checksum, HashAlgorithm algo);
@noSideEffects
extern void update_checksum_with_payload<T, O>(in bool condition, in T data, inout O checksum, HashAlgorithm algo);

// Copies the packet to the egress ports of a mirror session. The forms with a field list, or with data, keep metadata:
// the fields with @field_list(index).
extern void clone(in CloneType type, in bit<32> session);
// Processes the received packet once more, from the parser on, when ingress ends.
@deprecated("Please use 'resubmit_preserving_field_list' instead")
extern void resubmit<T>(in T data);
extern void resubmit_preserving_field_list(bit<8> index);
// Processes the deparsed packet once more, from the parser on, when egress ends.
@deprecated("Please use 'recirculate_preserving_field_list' instead")
extern void recirculate<T>(in T data);
extern void recirculate_preserving_field_list(bit<8> index);
@deprecated("Please use 'clone_preserving_field_list' instead")
extern void clone3<T>(in CloneType type, in bit<32> session, in T data);
extern void clone_preserving_field_list(in CloneType type, in bit<32> session, bit<8> index);

// Cuts the sent packet to a number of bytes.
extern void truncate(in bit<32> length);

// State what holds for every packet.
extern void assert(in bool check);
extern void assume(in bool check);

// Write to the log; each {} in the message stands for a part of the data.
extern void log_msg(string msg);
extern void log_msg<T>(string msg, in T data);

// Parts of the pipeline, in the order in which a packet passes them; between ingress and egress it is replicated and
// queued.
parser Parser<H, M>(packet_in b, out H parsedHdr, inout M meta, inout standard_metadata_t standard_metadata);
control VerifyChecksum<H, M>(inout H hdr, inout M meta);
@pipeline
control Ingress<H, M>(inout H hdr, inout M meta, inout standard_metadata_t standard_metadata);
@pipeline
control Egress<H, M>(inout H hdr, inout M meta, inout standard_metadata_t standard_metadata);
control ComputeChecksum<H, M>(inout H hdr, inout M meta);
@deparser
control Deparser<H>(packet_out b, in H hdr);

package V1Switch<H, M>(
    Parser<H, M> p,
    VerifyChecksum<H, M> vr,
    Ingress<H, M> ig,
    Egress<H, M> eg,
    ComputeChecksum<H, M> ck,
    Deparser<H> dep);

#endif
