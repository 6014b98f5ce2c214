#include "launch/cli/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>

namespace baton::cli {
namespace {

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

// "--kv-cache-dtype,-k" -> "kv-cache-dtype"
std::string first_long_name(const std::string& names) {
  const size_t at = names.find("--");
  if (at == std::string::npos) return "";
  return names.substr(at + 2, names.find(',', at) - at - 2);
}

std::string variable_name(const std::string& long_name) {
  std::string name = "BATON_";
  for (const char c : long_name) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& words) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : words) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

struct Command::State {
  explicit State(const std::string& verb, const std::string& description)
      : app(description, "baton " + verb) {}

  struct Named {
    std::string long_name;
    std::string hidden;
    CLI::Option* option;
    CLI::Option* hidden_option;
  };

  CLI::App app;
  std::vector<Named> named;
  bool print_config = false;

  template <class T>
  CLI::Option* add(const std::string& names, T& value, const std::string& help,
                   const std::string& hidden) {
    CLI::Option* option = app.add_option(names, value, help)->capture_default_str();
    return enroll(names, option, hidden,
                  [&](const std::string& alias) { return app.add_option(alias, value); });
  }
  template <class AddHidden>
  CLI::Option* enroll(const std::string& names, CLI::Option* option, const std::string& hidden,
                      AddHidden add_hidden) {
    const std::string name = first_long_name(names);
    option->envname(variable_name(name));
    CLI::Option* alias = hidden.empty() ? nullptr : add_hidden("--" + hidden)->group("");
    named.push_back({name, hidden, option, alias});
    return option;
  }

  std::string source_of(const Named& n, int argc, char** argv) const {
    for (int i = 2; i < argc; ++i) {
      const std::string word = argv[i];
      const auto is = [&](const std::string& name) {
        return !name.empty() && (word == "--" + name || word.rfind("--" + name + "=", 0) == 0);
      };
      if (is(n.long_name) || is(n.hidden)) return "command line";
      const bool is_short = word.size() >= 2 && word[0] == '-' && word[1] != '-';  // -n 8, -n8
      if (is_short && n.option->check_name(word.substr(0, 2))) return "command line";
    }
    const char* value = std::getenv(variable_name(n.long_name).c_str());
    if (value && *value) {
      return "environment " + variable_name(n.long_name);
    }
    return n.option->count() > 0 ? "file" : "default";
  }

  // The library reads the environment after the file, and so lets the file win: here variables
  // become words in front of the command line instead. `words` is in reverse order.
  void add_environment(std::vector<std::string>& words, int argc, char** argv) const {
    for (const Named& n : named) {
      const char* value = std::getenv(variable_name(n.long_name).c_str());
      if (!value || !*value || source_of(n, argc, argv) == "command line") continue;
      words.push_back("--" + n.long_name + "=" + value);
    }
  }

  void show_config(int argc, char** argv) const {
    for (const Named& n : named) {
      if (n.long_name == "config") continue;
      std::string value;
      if (n.option->count() > 0) {
        for (const std::string& part : n.option->reduced_results()) {
          value += value.empty() ? part : " " + part;
        }
      } else if (n.hidden_option && n.hidden_option->count() > 0) {
        value = n.hidden_option->results().back();
      } else {
        value = n.option->get_default_str();
      }
      std::printf("%-26s %-24s %s\n", n.long_name.c_str(), value.c_str(),
                  source_of(n, argc, argv).c_str());
    }
  }

  int report(const CLI::ParseError& error) const {
    std::string text = error.what();
    const std::vector<std::string> extras = app.remaining();
    std::vector<std::string> known;
    for (const Named& n : named) known.push_back("--" + n.long_name);
    for (const std::string& extra : extras) {
      const std::string word = extra.substr(0, extra.find('='));
      text = "unknown argument '" + word + "'";
      const std::string near = nearest(word, known);
      if (word.rfind("--", 0) == 0 && !near.empty()) text += "; did you mean " + near + "?";
      break;
    }
    std::fprintf(stderr, "%s: %s\nTry '%s --help'.\n", app.get_name().c_str(), text.c_str(),
                 app.get_name().c_str());
    return kUsage;
  }
};

Command::Command(const std::string& verb, const std::string& description)
    : state_(std::make_unique<State>(verb, description)) {
  CLI::App& app = state_->app;
  app.allow_config_extras(false);
  CLI::Option* config = app.set_config("--config", "", "Read options from this TOML file");
  state_->enroll("--config", config, "", [&](const std::string&) { return config; });
  app.add_flag("--print-config", state_->print_config,
               "Show every option's value and where it came from, then exit");
}

Command::~Command() = default;

void Command::option(const std::string& names, std::string& value, const std::string& help,
                     const std::string& hidden) {
  state_->add(names, value, help, hidden);
}
void Command::option(const std::string& names, int64_t& value, const std::string& help,
                     const std::string& hidden) {
  state_->add(names, value, help, hidden);
}
void Command::option(const std::string& names, double& value, const std::string& help,
                     const std::string& hidden) {
  state_->add(names, value, help, hidden);
}
void Command::option(const std::string& names, std::vector<std::string>& values,
                     const std::string& help) {
  state_->add(names, values, help, "")->allow_extra_args(false);
}
void Command::flag(const std::string& names, bool& value, const std::string& help) {
  CLI::Option* option = state_->app.add_flag(names, value, help);
  state_->enroll(names, option, "", [&](const std::string&) { return option; });
}
void Command::positional(const std::string& name, std::string& value, const std::string& help,
                         bool required) {
  state_->app.add_option(name, value, help)->required(required);
}
void Command::positional(const std::string& name, std::vector<std::string>& values,
                         const std::string& help) {
  state_->app.add_option(name, values, help);
}

bool Command::given(const std::string& long_name) const {
  for (const State::Named& n : state_->named) {
    if (n.long_name != long_name) continue;
    return n.option->count() > 0 || (n.hidden_option && n.hidden_option->count() > 0);
  }
  return false;
}

std::optional<int> Command::parse(int argc, char** argv) {
  std::vector<std::string> words;
  for (int i = argc - 1; i >= 2; --i) words.emplace_back(argv[i]);
  state_->add_environment(words, argc, argv);
  try {
    state_->app.parse(words);
  } catch (const CLI::CallForHelp&) {
    std::fputs(state_->app.help().c_str(), stdout);
    return kOk;
  } catch (const CLI::ParseError& error) {
    return state_->report(error);
  }
  if (state_->print_config) {
    state_->show_config(argc, argv);
    return kOk;
  }
  return std::nullopt;
}

}  // namespace baton::cli
