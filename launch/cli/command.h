#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace baton::cli {

// Exit statuses, as sysexits.h has them.
inline constexpr int kOk = 0;
inline constexpr int kUsage = 64;
inline constexpr int kBadModel = 65;
inline constexpr int kUnavailable = 69;
inline constexpr int kInternal = 70;
inline constexpr int kRetry = 75;

// The options of one verb. Each `--some-name` can also come from the environment (BATON_SOME_NAME)
// or from the file that --config names (`some-name = value`); the command line wins over the
// environment, that over the file. --print-config shows every value and where it came from.
class Command {
 public:
  Command(const std::string& verb, const std::string& description);
  ~Command();

  // `names` as CLI11 writes them: "--model,-m"; the first long one names the variable. An alias in
  // `hidden` is accepted and not shown.
  void option(const std::string& names, std::string& value, const std::string& help,
              const std::string& hidden = "");
  void option(const std::string& names, int64_t& value, const std::string& help,
              const std::string& hidden = "");
  void option(const std::string& names, double& value, const std::string& help,
              const std::string& hidden = "");
  void option(const std::string& names, std::vector<std::string>& values, const std::string& help);
  void flag(const std::string& names, bool& value, const std::string& help);
  void positional(const std::string& name, std::string& value, const std::string& help,
                  bool required);
  void positional(const std::string& name, std::vector<std::string>& values,
                  const std::string& help);

  // True if the option was given anywhere (command line, environment, file).
  bool given(const std::string& long_name) const;

  // Parses argv[2..]. A value: stop with this exit status (help, --print-config, an error that has
  // been printed with the nearest known option). Empty: go on.
  std::optional<int> parse(int argc, char** argv);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The word of `words` that `word` was probably meant to be; empty if none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& words);

}  // namespace baton::cli
