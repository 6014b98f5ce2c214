#include <doctest/doctest.h>

#include <cstring>
#include <string_view>

#include "kernels/isa.h"
#include "kernels/ops.h"

namespace baton::test {

TEST_CASE("without an override the best instruction set is chosen") {
  CHECK(choose_isa(nullptr).isa == detect());
  CHECK(choose_isa("").isa == detect());
  CHECK(std::string_view(choose_isa(nullptr).error).empty());
}

TEST_CASE("an override is followed if the machine can, and refused with a sentence if not") {
  CHECK(choose_isa("scalar").isa == Isa::scalar);
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::amx}) {
    const IsaChoice choice = choose_isa(isa_name(isa));
    CHECK(std::string_view(choice.error).empty() == isa_supported(isa));
    CHECK(choice.isa == (isa_supported(isa) ? isa : detect()));
    CHECK((ops_for(isa) != nullptr) == isa_supported(isa));
    if (ops_for(isa) != nullptr) CHECK(std::strcmp(ops_for(isa)->name, isa_name(isa)) == 0);
  }
  const IsaChoice unknown = choose_isa("sse9");
  CHECK(unknown.isa == detect());
  CHECK(std::string_view(unknown.error).find("\"sse9\"") != std::string_view::npos);
  CHECK(std::string_view(unknown.error).find("avx512") != std::string_view::npos);
}

TEST_CASE("every table is complete") {
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::amx}) {
    const Ops* ops = ops_for(isa);
    if (ops == nullptr) continue;
    const void* entries[sizeof(Ops) / sizeof(void*)];
    std::memcpy(entries, ops, sizeof(Ops));
    for (const void* entry : entries) CHECK(entry != nullptr);
  }
}

}  // namespace baton::test
