// The Portable Switch Architecture as DPDK has it.
#define PSA_DPDK
#include <psa.p4>
