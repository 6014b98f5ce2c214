#include "kernels/isa.h"

#include <asm/prctl.h>
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "kernels/cpu/ops_table.h"
#include "kernels/ops.h"

namespace baton {
namespace {

struct Cpuid {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Cpuid cpuid(unsigned leaf, unsigned subleaf) {
  Cpuid r;
  if (__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}

// Register state that the operating system saves (XCR0).
std::uint64_t saved_state() {
  unsigned low = 0;
  unsigned high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

constexpr bool has(unsigned value, unsigned bits) {
  return (value & bits) == bits;
}

// Whether this process may use tile registers: the system grants them when asked, for all threads.
bool tiles_granted() {
#ifdef ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace

const char* isa_name(Isa isa) noexcept {
  switch (isa) {
    case Isa::scalar: return "scalar";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
    case Isa::amx: return "amx";
  }
  return "";
}

Isa detect() noexcept {
  const Cpuid basic = cpuid(1, 0);
  if (!has(basic.c, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C)) return Isa::scalar;
  const std::uint64_t state = saved_state();
  const Cpuid extended = cpuid(7, 0);
  if ((state & 0x6) != 0x6 || !has(extended.b, bit_AVX2)) return Isa::scalar;
  constexpr unsigned kFoundation = bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ;
  if ((state & 0xe6) != 0xe6 || !has(extended.b, kFoundation) || !has(extended.c, bit_AVX512VNNI)) {
    return Isa::avx2;
  }
  if ((state & 0x60000) == 0x60000 && has(extended.d, bit_AMX_TILE | bit_AMX_INT8) &&
      tiles_granted()) {
    return Isa::amx;
  }
  return Isa::avx512;
}

bool isa_supported(Isa isa) noexcept {
  return isa <= detect();
}

IsaChoice choose_isa(const char* wanted) noexcept {
  IsaChoice choice;
  choice.isa = detect();
  if (wanted == nullptr || *wanted == '\0') return choice;
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::amx}) {
    if (std::strcmp(wanted, isa_name(isa)) != 0) continue;
    if (isa_supported(isa)) {
      choice.isa = isa;
      return choice;
    }
    std::snprintf(choice.error, sizeof choice.error,
                  "BATON_ISA asks for %s, but this processor has only %s: unset BATON_ISA, or set "
                  "it to %s or less (scalar, avx2, avx512, amx).",
                  isa_name(isa), isa_name(choice.isa), isa_name(choice.isa));
    return choice;
  }
  std::snprintf(choice.error, sizeof choice.error,
                "BATON_ISA is \"%.40s\", which names no instruction set: expected scalar, avx2, "
                "avx512 or amx, or leave it unset for the best there is.",
                wanted);
  return choice;
}

const IsaChoice& isa_choice() noexcept {
  static const IsaChoice kChoice = choose_isa(std::getenv("BATON_ISA"));
  return kChoice;
}

const Ops& ops() noexcept {
  static const Ops& kOps = *ops_for(isa_choice().isa);
  return kOps;
}

const Ops* ops_for(Isa isa) noexcept {
  if (!isa_supported(isa)) return nullptr;
  switch (isa) {
    case Isa::scalar: return &scalar::table();
    case Isa::avx2: return &avx2::table();
    case Isa::avx512: return &avx512::table();
    case Isa::amx: return &amx::table();
  }
  return nullptr;
}

}  // namespace baton
