#include "launch/serve/cluster_file.h"

#include <toml++/toml.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "launch/cli/command.h"
#include "launch/serve/serve_options.h"

namespace baton {
namespace {

constexpr int64_t kRanksMax = 4096;
constexpr int64_t kDegreeMax = 64;

// Reads one file; the first fault wins.
class Reader {
 public:
  Reader(const std::string& name, const InstanceDefaults& defaults)
      : name_(name), defaults_(defaults) {}

  Result<ClusterFile> read(const toml::table& file) {
    static const std::vector<std::string> kKeys = {"prefill", "decode", "kv-layer-groups",
                                                   "kv-digests"};
    for (auto&& [key, value] : file) {
      if (std::find(kKeys.begin(), kKeys.end(), key.str()) == kKeys.end()) unknown(key, kKeys);
    }
    HandoffTerms terms = defaults_.handoff;
    integer(file, "kv-layer-groups", 1, kLayerGroupsMax,
            [&](int64_t v) { terms.layer_groups = static_cast<uint32_t>(v); });
    boolean(file, "kv-digests", [&](bool v) { terms.digests = v; });
    read_role(file, "prefill", defaults_.prefill);
    read_role(file, "decode", defaults_.decode);
    if (!fault_.empty()) return Error{ErrorCode::invalid_argument, fault_};
    return ClusterFile{std::move(instances_), terms};
  }

 private:
  void read_role(const toml::table& file, const char* role, const InstanceSpec& defaults) {
    const toml::node* node = file.get(role);
    const std::string example = std::string("[[") + role + "]]";
    if (node == nullptr) {
      return fail(0, std::string("there is no ") + role +
                         " instance; expected at least one table " + example);
    }
    const toml::array* tables = node->as_array();
    if (tables == nullptr || tables->empty() || !tables->is_homogeneous(toml::node_type::table)) {
      return fail(line_of(*node), std::string("'") + role + "' is " + found(*node) +
                                      "; expected tables, each headed " + example);
    }
    for (const toml::node& table : *tables) read_instances(*table.as_table(), defaults);
  }

  void read_instances(const toml::table& table, InstanceSpec spec) {
    static const std::vector<std::string> kKeys = {
        "instances", "tensor-parallel", "block-size", "pipeline-parallel",
        "kv-dtype",  "kv-cache-memory", "threads"};
    for (auto&& [key, value] : table) {
      if (std::find(kKeys.begin(), kKeys.end(), key.str()) == kKeys.end()) unknown(key, kKeys);
    }
    int64_t count = 1;
    integer(table, "instances", 1, kRanksMax, [&](int64_t v) { count = v; });
    integer(table, "tensor-parallel", 1, kDegreeMax,
            [&](int64_t v) { spec.tensor_parallel = static_cast<uint32_t>(v); });
    integer(table, "pipeline-parallel", 1, kDegreeMax,
            [&](int64_t v) { spec.pipeline_parallel = static_cast<uint32_t>(v); });
    integer(table, "threads", 0, 1024, [&](int64_t v) { spec.threads = static_cast<uint32_t>(v); });
    integer(table, "block-size", 16, 64, [&](int64_t v) {
      if (v != 16 && v != 32 && v != 64) {
        fail(line_of(*table.get("block-size")),
             "'block-size' is " + std::to_string(v) + "; expected 16, 32 or 64 tokens");
      }
      spec.block_tokens = static_cast<uint32_t>(v);
    });
    text(table, "kv-dtype", "\"bf16\", \"f16\" or \"f32\"",
         [&](const std::string& v) { return parse_kv_dtype(v, spec.kv_dtype); });
    text(table, "kv-cache-memory", "a size such as \"512MiB\"", [&](const std::string& v) {
      spec.kv_cache_bytes = parse_bytes(v);
      return spec.kv_cache_bytes > 0;
    });
    if (spec.ranks() > kDegreeMax) {
      fail(line_of(table), "tensor-parallel x pipeline-parallel is " +
                               std::to_string(spec.ranks()) + " ranks; expected at most " +
                               std::to_string(kDegreeMax));
    }
    if (!fault_.empty()) return;
    instances_.insert(instances_.end(), static_cast<std::size_t>(count), spec);
  }

  template <class Take>
  void integer(const toml::table& table, const char* key, int64_t min, int64_t max, Take take) {
    const toml::node* node = table.get(key);
    if (node == nullptr) return;
    const auto* value = node->as_integer();
    if (value == nullptr || value->get() < min || value->get() > max) {
      return fail(line_of(*node), std::string("'") + key + "' is " + found(*node) +
                                      "; expected a whole number from " + std::to_string(min) +
                                      " to " + std::to_string(max));
    }
    take(value->get());
  }

  template <class Take>
  void boolean(const toml::table& table, const char* key, Take take) {
    const toml::node* node = table.get(key);
    if (node == nullptr) return;
    const auto* value = node->as_boolean();
    if (value != nullptr) return take(value->get());
    fail(line_of(*node),
         std::string("'") + key + "' is " + found(*node) + "; expected true or false");
  }

  template <class Take>
  void text(const toml::table& table, const char* key, const char* expected, Take take) {
    const toml::node* node = table.get(key);
    if (node == nullptr) return;
    const auto* value = node->as_string();
    if (value != nullptr && take(value->get())) return;
    fail(line_of(*node),
         std::string("'") + key + "' is " + found(*node) + "; expected " + expected);
  }

  void unknown(const toml::key& key, const std::vector<std::string>& known) {
    const std::string word(key.str());
    const std::string near = cli::nearest(word, known);
    std::string all;
    for (const std::string& k : known) all += (all.empty() ? "" : ", ") + k;
    fail(key.source().begin.line,
         "unknown key '" + word + "'; " +
             (near.empty() ? "known are " + all : "did you mean '" + near + "'?"));
  }

  // The value as the file has it.
  static std::string found(const toml::node& node) {
    std::ostringstream out;
    if (node.is_table()) {
      out << "a table";
    } else if (node.is_array()) {
      out << "an array";
    } else {
      node.visit([&](auto&& value) { out << value; });
    }
    return out.str();
  }
  static uint32_t line_of(const toml::node& node) { return node.source().begin.line; }

  void fail(uint32_t line, const std::string& text) {
    if (!fault_.empty()) return;
    fault_ = name_ + (line > 0 ? ":" + std::to_string(line) : "") + ": " + text;
  }

  const std::string& name_;
  const InstanceDefaults& defaults_;
  std::vector<InstanceSpec> instances_;
  std::string fault_;
};

}  // namespace

Result<ClusterFile> parse_cluster_file(std::string_view text, const std::string& name,
                                       const InstanceDefaults& defaults) {
  try {
    const toml::table file = toml::parse(text, std::string_view(name));
    return Reader(name, defaults).read(file);
  } catch (const toml::parse_error& error) {
    return Error{ErrorCode::invalid_argument,
                 name + ":" + std::to_string(error.source().begin.line) +
                     ": not TOML: " + std::string(error.description())};
  }
}

Result<ClusterFile> read_cluster_file(const std::string& path, const InstanceDefaults& defaults) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  if (!file.is_open() || file.bad()) {
    return Error{ErrorCode::invalid_argument,
                 "--cluster " + path + " cannot be read; expected a TOML file of instances"};
  }
  return parse_cluster_file(text, path, defaults);
}

bool parse_kv_dtype(const std::string& text, KvDtype& dtype) {
  for (const KvDtype known : {KvDtype::f32, KvDtype::bf16, KvDtype::f16}) {
    if (text != dtype_name(known)) continue;
    dtype = known;
    return true;
  }
  return false;
}

}  // namespace baton
