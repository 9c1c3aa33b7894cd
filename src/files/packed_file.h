// A file of packed weights, ready to be mapped: read without trust.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/mapped_file.h"
#include "base/result.h"
#include "files/content_hash.h"
#include "files/packed_format.h"

namespace quire {

// One tensor in a packed file.
struct PackedSection {
  std::string name;
  uint32_t type = 0;
  uint32_t out = 0;
  uint32_t in = 0;
  uint64_t offset = 0;  // of its first byte in data()
  uint64_t bytes = 0;
  uint64_t piece_bytes = 0;
};

// What a file has to hold in order to serve a model. Everything a reader uses comes from here: a file only
// says whether it agrees.
struct PackedPlan {
  std::string layout;
  uint32_t layout_version = 0;
  std::string model;  // its name, for people
  std::vector<PackedSection> sections;
  uint64_t data_bytes = 0;
  ContentHash key;
};

// An open packed file. It holds a shared lock, so that nobody removes it from the cache while it is in use.
// Movable; any thread reads data(). Invariant: header and table are consistent with each other and with the
// size of the file; what lies in data() is checked by verify_data() alone, and may be anything.
class PackedFile {
 public:
  // Reads header and table. Errors: kNotFound, kCorruptFile (what is wrong), kUnsupported (another version of
  // the format), kIo.
  static Result<PackedFile> open(const std::string& path);
  // The same for a file that is open and locked already.
  static Result<PackedFile> adopt(FileDescriptor file, const std::string& path);

  // Whether it holds what is planned. Error kCorruptFile names what does not agree.
  [[nodiscard]] Result<> check(const PackedPlan& plan) const;
  // Reads everything. Error kCorruptFile names the first tensor whose bytes are not those that were written.
  [[nodiscard]] Result<> verify_data() const;

  [[nodiscard]] const std::string& path() const { return mapping_.path(); }
  [[nodiscard]] const PackedHeader& header() const { return header_; }
  [[nodiscard]] std::string model() const;
  [[nodiscard]] std::span<const std::byte> data() const {
    return mapping_.bytes().subspan(header_.data_offset);
  }

  // Whether a model file in this state is known to be the one that was packed; and to remember one.
  [[nodiscard]] bool has_seen(const ContentHash& state) const;
  void remember(const ContentHash& state) const;
  // Marks the file as used now.
  void touch() const;

 private:
  PackedFile(FileDescriptor file, MappedFile mapping)
      : file_(std::move(file)), mapping_(std::move(mapping)) {}
  [[nodiscard]] Result<> read_header();
  [[nodiscard]] Result<> read_table();
  [[nodiscard]] PackedSeen seen() const;
  template <class... Args>
  [[nodiscard]] std::unexpected<Error> corrupt(std::string field, fmt::format_string<Args...> text,
                                               Args&&... args) const {
    return fail(ErrorCode::kCorruptFile, std::move(field), "{}: {}", path(),
                fmt::format(text, std::forward<Args>(args)...));
  }

  FileDescriptor file_;
  MappedFile mapping_;
  PackedHeader header_;
  std::vector<PackedEntry> entries_;
};

}  // namespace quire
