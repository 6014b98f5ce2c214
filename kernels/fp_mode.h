#pragma once

namespace baton {

// Round to nearest even, subnormals flushed to zero on input and output, exceptions masked: the
// mode in which all numbers are computed (numerics.md rule 10). Per thread.
void set_fp_mode() noexcept;
bool fp_mode_is_set() noexcept;

// Sets the mode for a scope on this thread and puts the old one back.
class FpModeScope {
 public:
  FpModeScope() noexcept;
  ~FpModeScope();
  FpModeScope(const FpModeScope&) = delete;
  FpModeScope& operator=(const FpModeScope&) = delete;

 private:
  unsigned saved_;
};

}  // namespace baton
