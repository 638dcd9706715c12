// The architecture of packet filters (eBPF): a parser and a control that says whether the packet is accepted.
#ifndef _EBPF_MODEL_P4_
#define _EBPF_MODEL_P4_

#include <core.p4>

// An array of counters; a sparse one takes memory only for those in use.
extern CounterArray {
    CounterArray(bit<32> max_index, bool sparse);
    void increment(in bit<32> index);
    void add(in bit<32> index, in bit<32> value);
}

// Kinds of storage of a table, for its property `implementation`.
extern array_table {
    array_table(bit<32> size);
}
extern hash_table {
    hash_table(bit<32> size);
}

parser parse<H>(packet_in packet, out H headers);
control filter<H>(inout H headers, out bool accept);
package ebpfFilter<H>(parse<H> prs, filter<H> filt);

#endif
