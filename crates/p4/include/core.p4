// What every P4-16 program builds on (P4-16 1.2.5, appendix D): errors, packets, and the kinds of matching that every
// target has.
#ifndef _CORE_P4_
#define _CORE_P4_

error {
    NoError,
    PacketTooShort,         // extract, lookahead or advance behind the packet's end
    NoMatch,                // no case of a select has the value
    StackOutOfBounds,       // next or last of a full or empty stack
    HeaderTooShort,         // a varbit field is too short for the extracted header
    ParserTimeout,          // the parser took more time than allowed
    ParserInvalidArgument   // an extract, lookahead or advance with an argument that the target does not support
}

// The packet that a parser reads, from its start to its end.
extern packet_in {
    // Reads a header of a fixed size and makes it valid.
    void extract<T>(out T hdr);
    // Reads a header whose only varbit field takes the given number of bits.
    void extract<T>(out T variableSizeHeader, in bit<32> variableFieldSizeInBits);
    // Reads a value and leaves the packet unchanged.
    T lookahead<T>();
    // Skips bits.
    void advance(in bit<32> sizeInBits);
    // Length of the packet in bytes.
    bit<32> length();
}

// The packet that a deparser writes.
extern packet_out {
    // Appends a header if it is valid; of stacks, unions and structs, those headers in them that are valid.
    void emit<T>(in T hdr);
}

// Ends the parser with an error unless the condition holds.
extern void verify(in bool check, in error toSignal);

// Leaves everything unchanged.
@noWarn("unused")
action NoAction() {}

match_kind {
    exact,      // equal
    ternary,    // equal in the bits of a mask; priorities decide
    lpm         // equal in the leading bits; the longest prefix wins
}

// Refuses the program, with the message, unless the condition holds; it is known at compile time.
extern bool static_assert(bool check, string message);
extern bool static_assert(bool check);

#endif
