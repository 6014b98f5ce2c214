#include "runtime/model/model_file.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/unit/model/gguf_builder.h"

namespace baton {
namespace {

using test::GgufBuilder;
using test::open_bytes;
using test::tiny_llama;

// One malformed file: what breaks it, and what its error must say beside the file's name.
struct Defect {
  const char* name;
  std::function<void(GgufBuilder&)> apply;
  std::vector<std::string> says;
  ErrorCode code = ErrorCode::bad_model;
};

void check_refused(const Defect& defect) {
  CAPTURE(defect.name);
  GgufBuilder file = tiny_llama();
  defect.apply(file);
  const Result<ModelFile> opened = open_bytes(file);
  REQUIRE_FALSE(opened.ok());
  const std::string& text = opened.error().text;
  CAPTURE(text);
  CHECK(opened.error().code == defect.code);
  CHECK(text.starts_with("model.gguf: byte "));
  CHECK(text.find('\n') == std::string::npos);
  CHECK(text.size() < 400);
  for (const std::string& part : defect.says) {
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
}

std::string u64(std::uint64_t value) {
  return GgufBuilder::number(value);
}
std::string u32(std::uint32_t value) {
  return GgufBuilder::number(value);
}

const std::vector<Defect> kDefects = {
    // Row 32: what is no GGUF of this kind.
    {"bad magic",
     [](auto& f) { f.magic = 0x46554748; },
     {"byte 0, the magic number", "'HGUF'", "expected 'GGUF'"}},
    {"version 1",
     [](auto& f) { f.version = 1; },
     {"byte 4, the version", "got 1", "expected 2 or 3"}},
    {"version 4", [](auto& f) { f.version = 4; }, {"got 4", "expected 2 or 3"}},
    {"version 0", [](auto& f) { f.version = 0; }, {"got 0", "expected 2 or 3"}},
    {"big-endian",
     [](auto& f) { f.version = 0x03000000; },
     {"big-endian", "expected a little-endian file"}},
    // Row 33: lengths beyond the file, before anything is allocated for them.
    {"2^63 tensors",
     [](auto& f) { f.tensor_count = 1ull << 63; },
     {"byte 8, the tensor count", "got 9223372036854775808"}},
    {"2^63 keys",
     [](auto& f) { f.metadata_count = 1ull << 63; },
     {"byte 16, the metadata count", "got 9223372036854775808"}},
    {"60000 tensors in a short file",
     [](auto& f) { f.tensor_count = 60000; },
     {"the tensor count", "that fit into the"}},
    {"60000 keys in a short file", [](auto& f) { f.metadata_count = 60000; }, {"metadata"}},
    {"string of 2^64 - 1 bytes",
     [](auto& f) { f.raw("general.name", 8, u64(~0ull)); },
     {"'general.name'", "a string of 18446744073709551615 bytes", "left in the file"}},
    {"string of 2^63 bytes",
     [](auto& f) { f.raw("general.name", 8, u64(1ull << 63)); },
     {"'general.name'", "a string of 9223372036854775808 bytes"}},
    {"array of 2^63 strings",
     [](auto& f) { f.raw("x", 9, u32(8) + u64(1ull << 63)); },
     {"'x'", "an array of 9223372036854775808 elements"}},
    {"array of 2^62 u64",
     [](auto& f) { f.raw("x", 9, u32(10) + u64(1ull << 62)); },
     {"'x'", "an array of 4611686018427387904 elements"}},
    {"key of 100000 bytes",
     [](auto& f) { f.u32(std::string(100000, 'k'), 1); },
     {"the name of metadata key", "a string of 100000 bytes", "at most 65535"}},
    {"empty key", [](auto& f) { f.u32("", 1); }, {"an empty name"}},
    {"unknown value type",
     [](auto& f) { f.raw("x", 13, "\0"); },
     {"'x'", "value type 13", "from 0 to 12"}},
    {"unknown element type",
     [](auto& f) { f.raw("x", 9, u32(99) + u64(0)); },
     {"'x'", "value type 99"}},
    // Row 34: shapes.
    {"product of dimensions overflows",
     [](auto& f) {
       f.tensor_named("output_norm.weight").dims = {1ull << 32, 1ull << 32};
       f.tensor_named("output_norm.weight").bytes = 128;
     },
     {"'output_norm.weight'", "product exceeds 2^63 - 1"}},
    {"product overflows to small",
     [](auto& f) {
       f.tensor_named("output_norm.weight").dims = {32, 1ull << 62, 4};
       f.tensor_named("output_norm.weight").bytes = 128;
     },
     {"'output_norm.weight'", "product exceeds 2^63 - 1"}},
    {"dimension of 0",
     [](auto& f) { f.tensor_named("output_norm.weight").dims = {0}; },
     {"'output_norm.weight'", "got 0 as dimension 0", "a positive number"}},
    {"negative dimension",
     [](auto& f) {
       f.tensor_named("output_norm.weight").dims = {~0ull};
       f.tensor_named("output_norm.weight").bytes = 128;
     },
     {"'output_norm.weight'", "got -1 as dimension 0"}},
    {"five dimensions",
     [](auto& f) {
       f.tensor_named("output_norm.weight").dims = {32, 1, 1, 1, 1};
     },
     {"'output_norm.weight'", "5 dimensions", "1 to 4"}},
    {"no dimensions",
     [](auto& f) { f.tensor_named("output_norm.weight").dims = {}; },
     {"'output_norm.weight'", "0 dimensions"}},
    {"rows that are no whole blocks",
     [](auto& f) {
       f.tensor_named("blk.0.attn_q.weight").dims = {16, 32};
     },
     {"'blk.0.attn_q.weight'", "rows of 16 elements", "a multiple of 32"}},
    {"size in bytes overflows",
     [](auto& f) {
       f.tensor_named("output_norm.weight").dims = {1ull << 62};
       f.tensor_named("output_norm.weight").bytes = 128;
     },
     {"'output_norm.weight'", "beyond 2^64 bytes"}},
    {"tensor type out of range",
     [](auto& f) { f.tensor_named("output_norm.weight").type = 1000; },
     {"'output_norm.weight'", "tensor type 1000"}},
    {"withdrawn tensor type",
     [](auto& f) { f.tensor_named("output_norm.weight").type = 4; },
     {"tensor type 4"}},
    {"K-quants",
     [](auto& f) { f.tensor_named("blk.0.attn_q.weight").type = 12; },
     {"'blk.0.attn_q.weight'", "type Q4_K is not supported",
      "supported are F32, F16, BF16, Q4_0, Q4_1 and Q8_0"},
     ErrorCode::unsupported},
    // Row 35: alignment.
    {"alignment 0",
     [](auto& f) { f.u32("general.alignment", 0); },
     {"'general.alignment'", "got 0", "a power of two"}},
    {"alignment 3",
     [](auto& f) { f.u32("general.alignment", 3); },
     {"'general.alignment'", "got 3"}},
    {"alignment 2^31",
     [](auto& f) { f.u32("general.alignment", 1u << 31); },
     {"'general.alignment'", "got 2147483648", "to 65536"}},
    {"alignment as a string",
     [](auto& f) { f.str("general.alignment", "32"); },
     {"'general.alignment'", "type string", "type u32"}},
    {"alignment as u64", [](auto& f) { f.raw("general.alignment", 10, u64(32)); }, {"type u64"}},
    // Row 36: offsets.
    {"unaligned offset",
     [](auto& f) { f.tensor_named("output_norm.weight").offset = 33; },
     {"'output_norm.weight'", "data offset 33", "a multiple of the alignment, 32"}},
    {"overlapping tensors",
     [](auto& f) { f.tensor_named("output_norm.weight").offset = 0; },
     {"'output_norm.weight'", "data offset 0", "without gap or overlap"}},
    {"gap between tensors",
     [](auto& f) { f.tensor_named("output_norm.weight").offset = 1u << 20; },
     {"'output_norm.weight'", "data offset 1048576", "without gap or overlap"}},
    {"last tensor past the end",
     [](auto& f) { f.tensor_named("blk.0.ffn_down.weight").bytes = 64; },
     {"'blk.0.ffn_down.weight'", "8192 bytes of data", "truncated download?"}},
    {"padding that overflows",
     [](auto& f) { f.tensor_named("output_norm.weight").offset = ~0ull - 31; },
     {"'output_norm.weight'", "data offset 18446744073709551584"}},
    {"bytes behind the last tensor",
     [](auto& f) { f.tail = std::string(100, 'x'); },
     {"the end of the tensor data", "100 more bytes"}},
    // Row 37: what a parser might take twice or too deep.
    {"duplicate key",
     [](auto& f) { f.add_raw("llama.block_count", 4, u32(2)); },
     {"'llama.block_count'", "a second time", "each key once"}},
    {"duplicate tensor",
     [](auto& f) {
       f.tensor({"output_norm.weight", {32}, 0, {}, {}, {}});
     },
     {"'output_norm.weight'", "a second time", "each tensor once"}},
    {"boolean of 2",
     [](auto& f) { f.boolean("tokenizer.ggml.add_bos_token", 2); },
     {"'tokenizer.ggml.add_bos_token'", "the boolean 2", "0 or 1"}},
    {"boolean of 2 in an array",
     [](auto& f) { f.raw("x", 9, u32(7) + u64(3) + std::string("\0\1\2", 3)); },
     {"'x'", "the boolean 2"}},
    {"nested arrays",
     [](auto& f) { f.raw("x", 9, u32(9) + u64(1) + u32(4) + u64(1) + u32(7)); },
     {"'x'", "an array of arrays"}},
    {"arrays nested 10^4 deep",
     [](auto& f) {
       std::string deep;
       for (int i = 0; i < 10000; ++i) deep += u32(9) + u64(1);
       f.raw("x", 9, deep);
     },
     {"'x'", "an array of arrays"}},
    {"empty tensor name",
     [](auto& f) { f.tensor_named("output_norm.weight").name = ""; },
     {"an empty name"}},
    {"tensor name of 65 bytes",
     [](auto& f) { f.tensor_named("output_norm.weight").name = std::string(65, 't'); },
     {"a string of 65 bytes", "at most 64"}},
};

// A file in a folder of its own, removed with it.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::vector<std::byte>& bytes) {
    char folder[] = "/tmp/baton-model-test-XXXXXX";
    REQUIRE(::mkdtemp(folder) != nullptr);
    folder_ = folder;
    std::ofstream out(path(), std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  }
  ~TemporaryFile() { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/model.gguf"; }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

}  // namespace

TEST_CASE("a malformed file is refused by one sentence with file, byte, key or tensor") {
  for (const Defect& defect : kDefects) check_refused(defect);
}

TEST_CASE("a file cut short anywhere is refused, and never read beyond its end") {
  const std::vector<std::byte> whole = tiny_llama().build();
  for (std::size_t size = 0; size < whole.size(); size += size < 9000 ? 1 : 97) {
    std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    CAPTURE(size);
    const Result<ModelFile> opened = ModelFile::from_bytes(std::move(cut), "model.gguf");
    REQUIRE_FALSE(opened.ok());
    CHECK(opened.error().code == ErrorCode::bad_model);
  }
}

TEST_CASE("any one changed byte gives a model or a sentence, never a crash") {
  const std::vector<std::byte> whole = tiny_llama().build();
  const Result<ModelFile> good = ModelFile::from_bytes(whole, "model.gguf");
  REQUIRE(good.ok());
  for (std::size_t at = 0; at < good->data_offset(); ++at) {
    for (const unsigned flip : {0x01u, 0x80u, 0xFFu}) {
      std::vector<std::byte> changed = whole;
      changed[at] ^= static_cast<std::byte>(flip);
      const Result<ModelFile> opened = ModelFile::from_bytes(std::move(changed), "model.gguf");
      if (!opened.ok()) CHECK(opened.error().text.starts_with("model.gguf: "));
    }
  }
}

TEST_CASE("a good file shows its metadata and tensors") {
  for (const std::uint32_t version : {2u, 3u}) {
    GgufBuilder built = tiny_llama();
    built.version = version;
    built.f32("x.f32", 1.5f).boolean("x.bool", 1).raw("x.i8", 1, "\xFF");
    const Result<ModelFile> file = open_bytes(built);
    REQUIRE_MESSAGE(file.ok(), file.error().text);
    CHECK(file->version() == version);
    CHECK(file->alignment() == 32);
    CHECK(file->find("general.architecture")->as_string() == "llama");
    CHECK(file->find("llama.block_count")->as_unsigned() == 1);
    CHECK(file->find("llama.block_count")->as_string() == std::nullopt);
    CHECK(file->find("x.f32")->as_number() == 1.5);
    CHECK(file->find("x.f32")->as_unsigned() == std::nullopt);
    CHECK(file->find("x.bool")->as_bool() == true);
    CHECK(file->find("x.i8")->as_unsigned() == std::nullopt);
    CHECK(file->find("x.i8")->as_number() == -1);
    CHECK(file->find("tokenizer.ggml.tokens")->as_strings()->at(1) == "<|im_start|>");
    CHECK(file->find("tokenizer.ggml.token_type")->as_integers()->at(0) == 3);
    CHECK(file->find("no such key") == nullptr);
    const TensorInfo* tensor = file->tensor("blk.0.ffn_down.weight");
    REQUIRE(tensor != nullptr);
    CHECK(tensor->columns() == 64);
    CHECK(tensor->rows() == 32);
    CHECK(tensor->data.size() == 64 * 32 * 4);
    CHECK(tensor->offset % 32 == 0);
    CHECK(tensor->data[1] == std::byte{static_cast<unsigned char>(7 + tensor->name.size())});
    CHECK(file->tensor("no such tensor") == nullptr);
  }
}

TEST_CASE("another alignment moves the data, and a last tensor without padding is accepted") {
  GgufBuilder built = tiny_llama();
  built.alignment = 128;
  built.u32("general.alignment", 128);
  const Result<ModelFile> file = open_bytes(built);
  REQUIRE_MESSAGE(file.ok(), file.error().text);
  for (const TensorInfo& tensor : file->tensors()) CHECK(tensor.offset % 128 == 0);

  GgufBuilder odd;
  odd.str("general.architecture", "llama").tensor({"t", {5}, 1, {}, {}, {}});
  std::vector<std::byte> bytes = odd.build();
  bytes.resize(bytes.size() - (32 - 10));
  const Result<ModelFile> unpadded = ModelFile::from_bytes(bytes, "model.gguf");
  REQUIRE_MESSAGE(unpadded.ok(), unpadded.error().text);
  CHECK(unpadded->tensor("t")->data.size() == 10);
}

TEST_CASE("names from a file cannot write to the terminal") {
  GgufBuilder built = tiny_llama();
  built.tensor_named("output_norm.weight").name = "\x1b[2J\n\xFF";
  built.tensor_named("\x1b[2J\n\xFF").dims = {0};
  const Result<ModelFile> file = open_bytes(built);
  REQUIRE_FALSE(file.ok());
  CHECK(file.error().text.find("'\\x1b[2J\\x0a\\xff'") != std::string::npos);
}

TEST_CASE("paths that are no model file are refused with the reason") {
  const TemporaryFile empty({});
  const Result<ModelFile> missing = ModelFile::open(empty.folder() + "/none.gguf");
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().code == ErrorCode::not_found);
  CHECK(missing.error().text.find("/none.gguf: cannot be opened: No such file") !=
        std::string::npos);
  const Result<ModelFile> folder = ModelFile::open(empty.folder());
  REQUIRE_FALSE(folder.ok());
  CHECK(folder.error().text.find("not a regular file") != std::string::npos);
  const Result<ModelFile> nothing = ModelFile::open(empty.path());
  REQUIRE_FALSE(nothing.ok());
  CHECK(nothing.error().code == ErrorCode::bad_model);
  CHECK(nothing.error().text.find("0 bytes") != std::string::npos);
}

TEST_CASE("the fingerprint follows the bytes, and SHA-256 is that of the file") {
  GgufBuilder built = tiny_llama();
  const TemporaryFile file(built.build());
  const Result<ModelFile> opened = ModelFile::open(file.path());
  REQUIRE_MESSAGE(opened.ok(), opened.error().text);
  const std::string fingerprint = opened->fingerprint();
  CHECK(fingerprint.size() == 32);
  CHECK(fingerprint == open_bytes(built)->fingerprint());
  built.u32("llama.context_length", 65);
  CHECK(fingerprint != open_bytes(built)->fingerprint());
  built.u32("llama.context_length", 64);
  built.tensor_named("blk.0.ffn_up.weight").data = "another start";
  CHECK(fingerprint != open_bytes(built)->fingerprint());

  const TemporaryFile abc({std::byte{'a'}, std::byte{'b'}, std::byte{'c'}});
  std::uint64_t last_done = 0;
  const Result<std::string> sha =
      sha256_of_file(abc.path(), [&](std::uint64_t done, std::uint64_t) { last_done = done; });
  REQUIRE(sha.ok());
  CHECK(*sha == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(last_done == 3);
  CHECK_FALSE(sha256_of_file(abc.folder() + "/none").ok());
}

TEST_CASE("a file cut short while mapped ends the process with status 65 and a sentence") {
  const TemporaryFile file(tiny_llama().build());
  int sentence[2];
  REQUIRE(::pipe(sentence) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(sentence[1], STDERR_FILENO);
    install_model_fault_handler();
    const Result<ModelFile> opened = ModelFile::open(file.path());
    if (!opened.ok() || ::truncate(file.path().c_str(), 100) != 0) ::_exit(1);
    const std::span<const std::byte> data = opened->tensor("blk.0.ffn_down.weight")->data;
    volatile std::byte last = data[data.size() - 1];
    static_cast<void>(last);
    ::_exit(2);  // the read went through
  }
  ::close(sentence[1]);
  std::string text;
  char buffer[1024];
  for (ssize_t size = 0; (size = ::read(sentence[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(size));
  }
  ::close(sentence[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CAPTURE(text);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 65);
  CHECK(text.find(file.path()) != std::string::npos);
  CHECK(text.find("cut short or replaced") != std::string::npos);
}

}  // namespace baton
