#pragma once

#include <cstdint>

namespace baton {

struct Ops;

// Instruction sets that the kernels are compiled for. avx2 needs AVX2, FMA and F16C; avx512 needs
// F, BW, VL, DQ and VNNI as well; amx needs tile registers with int8, beside those. All give the
// same bits.
enum class Isa : std::uint8_t { scalar, avx2, avx512, amx };

const char* isa_name(Isa isa) noexcept;  // "avx2"

// The best one that this processor and operating system have; asks CPUID every time, and the system
// for its permission to use tile registers.
Isa detect() noexcept;
bool isa_supported(Isa isa) noexcept;

struct IsaChoice {
  Isa isa = Isa::scalar;
  // Why BATON_ISA cannot be followed: a sentence to print before leaving; empty if all is well.
  char error[256] = {};
};

// What to run with, given the value of BATON_ISA (null or empty: the best there is). After an
// error, isa is the best there is.
IsaChoice choose_isa(const char* wanted) noexcept;

// The process's choice, made once from the environment at first use; thread-safe. A main prints
// error and exits with the status for bad configuration if it is not empty.
const IsaChoice& isa_choice() noexcept;

// The table of the process's choice; thread-safe.
const Ops& ops() noexcept;
// The table of one instruction set, for tests and benchmarks; null if this machine lacks it.
const Ops* ops_for(Isa isa) noexcept;

}  // namespace baton
