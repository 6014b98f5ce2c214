#pragma once

#include <cstddef>
#include <string>

namespace baton {

// The table that install_model_fault_handler() reads: which file is mapped where. Thread-safe. When
// the table is full a mapping is simply not named by the handler.
void remember_mapping(const void* base, std::size_t size, const std::string& path);
void forget_mapping(const void* base);

}  // namespace baton
