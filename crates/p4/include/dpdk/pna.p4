// The Portable NIC Architecture as DPDK has it.
#define PNA_DPDK
#include <pna.p4>
