#include "files/packed_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include "files/field_reader.h"

namespace quire {
namespace {

template <size_t size>
std::string_view padded_text(const std::array<char, size>& text) {
  return {text.data(), ::strnlen(text.data(), size)};
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

ContentHash hash_of(const PackedSeen& seen) {
  return content_hash(bytes_of(seen).first(offsetof(PackedSeen, hash)));
}

// A name as the table holds it.
std::string_view cut_name(std::string_view name) {
  return name.substr(0, sizeof(PackedEntry::name));
}

}  // namespace

Result<PackedFile> PackedFile::open(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
    return fail(code, "path", "cannot open {}: {}", path, std::strerror(errno));
  }
  // Only whoever is about to remove it holds it alone. File systems without locks serve, unprotected.
  if (::flock(file.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return fail(ErrorCode::kNotFound, "path", "{} is being removed", path);
  return adopt(std::move(file), path);
}

Result<PackedFile> PackedFile::adopt(FileDescriptor file, const std::string& path) {
  MappedFile mapping = TRY(MappedFile::map(file, path));
  PackedFile packed(std::move(file), std::move(mapping));
  TRY(packed.read_header());
  TRY(packed.read_table());
  return packed;
}

Result<> PackedFile::read_header() {
  const uint64_t size = mapping_.bytes().size();
  if (size < kPackedPage)
    return corrupt("file_bytes", "it has {} bytes, a header takes {}", size, kPackedPage);
  std::memcpy(&header_, mapping_.bytes().data(), sizeof header_);
  if (header_.magic != kPackedMagic) return corrupt("magic", "it is not a file of packed weights");
  if (header_.format_version != kPackedFormatVersion) {
    return fail(ErrorCode::kUnsupported, "format_version", "{}: format_version is {}, this build reads {}",
                path(), header_.format_version, kPackedFormatVersion);
  }
  if (content_hash(bytes_of(header_).first(offsetof(PackedHeader, header_hash))) != header_.header_hash)
    return corrupt("header_hash", "the header is damaged");
  if (header_.file_bytes != size)
    return corrupt("file_bytes", "it has {} bytes, it was written with {}", size, header_.file_bytes);
  const uint64_t sections_max = (size - kPackedPage) / sizeof(PackedEntry);
  if (header_.section_count > sections_max)
    return corrupt("section_count", "section_count is {}, {} fit", header_.section_count, sections_max);
  const uint64_t data_offset = packed_data_offset(header_.section_count);
  if (header_.data_offset != data_offset || data_offset > size || header_.data_bytes != size - data_offset) {
    return corrupt("data_offset", "data is {} bytes at byte {}, {} sections and {} bytes leave other room",
                   header_.data_bytes, header_.data_offset, header_.section_count, size);
  }
  return {};
}

Result<> PackedFile::read_table() {
  const auto table = mapping_.bytes().subspan(kPackedPage, header_.section_count * sizeof(PackedEntry));
  if (content_hash(table) != header_.table_hash) return corrupt("table_hash", "the table is damaged");
  entries_.resize(header_.section_count);
  if (!table.empty()) std::memcpy(entries_.data(), table.data(), table.size());
  uint64_t end = 0;  // of the section before
  for (const PackedEntry& entry : entries_) {
    const bool fits = entry.offset >= end && entry.offset <= header_.data_bytes &&
                      entry.bytes <= header_.data_bytes - entry.offset;
    if (!fits || entry.piece_bytes < std::min(entry.bytes, kPackedPieceMin) || entry.piece_bytes == 0) {
      return corrupt("offset", "{}: {} bytes at byte {} in pieces of {}, the data has {} bytes",
                     printable(padded_text(entry.name)), entry.bytes, entry.offset, entry.piece_bytes,
                     header_.data_bytes);
    }
    end = entry.offset + entry.bytes;
  }
  return {};
}

Result<> PackedFile::check(const PackedPlan& plan) const {
  if (padded_text(header_.layout) != plan.layout || header_.layout_version != plan.layout_version) {
    return corrupt("layout", "its layout is {} {}, wanted is {} {}", printable(padded_text(header_.layout)),
                   header_.layout_version, plan.layout, plan.layout_version);
  }
  if (header_.key != plan.key)
    return corrupt("key", "it holds {}, wanted is {}", header_.key.hex(), plan.key.hex());
  if (entries_.size() != plan.sections.size() || header_.data_bytes != plan.data_bytes) {
    return corrupt("section_count", "{} sections of {} bytes, wanted are {} of {}", entries_.size(),
                   header_.data_bytes, plan.sections.size(), plan.data_bytes);
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    const PackedEntry& entry = entries_[i];
    const PackedSection& section = plan.sections[i];
    const bool agrees = padded_text(entry.name) == cut_name(section.name) && entry.type == section.type &&
                        entry.out == section.out && entry.in == section.in &&
                        entry.offset == section.offset && entry.bytes == section.bytes &&
                        entry.piece_bytes == section.piece_bytes;
    if (!agrees) {
      return corrupt("sections", "section {} is {}, wanted is {}, or it lies elsewhere", i,
                     printable(padded_text(entry.name)), section.name);
    }
  }
  return {};
}

Result<> PackedFile::verify_data() const {
  std::vector<ContentHash> pieces;
  for (const PackedEntry& entry : entries_) {
    pieces.clear();
    auto rest = data().subspan(entry.offset, entry.bytes);
    while (!rest.empty()) {
      const auto piece = rest.first(std::min<uint64_t>(entry.piece_bytes, rest.size()));
      pieces.push_back(content_hash(piece));
      mapping_.release_pages(piece);
      rest = rest.subspan(piece.size());
    }
    if (content_hash(pieces) != entry.hash)
      return corrupt("data", "{} is damaged", printable(padded_text(entry.name)));
  }
  return {};
}

std::string PackedFile::model() const {
  return printable(padded_text(header_.model));
}

PackedSeen PackedFile::seen() const {
  PackedSeen seen;
  std::memcpy(&seen, mapping_.bytes().data() + kPackedSeenOffset, sizeof seen);
  return hash_of(seen) == seen.hash ? seen : PackedSeen{};
}

bool PackedFile::has_seen(const ContentHash& state) const {
  const PackedSeen known = seen();
  return state != ContentHash{} && std::ranges::find(known.states, state) != known.states.end();
}

void PackedFile::remember(const ContentHash& state) const {
  const FileDescriptor writable(::open(path().c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat mine;
  struct stat its;
  // Another process may have replaced the file meanwhile.
  if (!writable.is_open() || ::fstat(file_.get(), &mine) != 0 || ::fstat(writable.get(), &its) != 0 ||
      mine.st_dev != its.st_dev || mine.st_ino != its.st_ino) {
    return;
  }
  PackedSeen next = seen();
  std::shift_right(next.states.begin(), next.states.end(), 1);
  next.states.front() = state;
  next.hash = hash_of(next);
  // Without it the next start compares the contents again.
  [[maybe_unused]] const ssize_t written =
      ::pwrite(writable.get(), &next, sizeof next, static_cast<off_t>(kPackedSeenOffset));
}

void PackedFile::touch() const {
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, {.tv_sec = 0, .tv_nsec = UTIME_NOW}};
  ::futimens(file_.get(), times);
}

}  // namespace quire
